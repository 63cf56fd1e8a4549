"""The statement about parameters: counted exactly, for every model that the project knows."""

from andrea_bench.claims.finding import Claim, Evidence, claim
from andrea_bench.models import find_model, presets

STATED_LAYER, STATED_MILLIONS = 2_359_296, 28.3
# `about a quarter`: between a fifth and 30 %.
QUARTER = (0.20, 0.30)


def parameter_count() -> Claim:
    """andrea-120m against the statement, then attention's share in all presets."""
    model = find_model("andrea-120m")
    counts = model.parameters()
    share = counts.attention_share
    evidence = [
        Evidence(
            on="andrea-120m, one layer",
            how="exact",
            finding="holds" if counts.attention_per_layer == 4 * 768**2 == STATED_LAYER else "fails",
            text=f"{counts.attention_per_layer:,} parameters in W_Q, W_K, W_V and W_O",
            numbers={"attention_per_layer": counts.attention_per_layer},
        ),
        Evidence(
            on="andrea-120m, 12 layers",
            how="exact",
            finding="holds" if round(counts.attention / 1e6, 1) == STATED_MILLIONS else "fails",
            text=f"{counts.attention:,} parameters",
            numbers={"attention": counts.attention},
        ),
    ]
    if share is not None and counts.unique is not None:
        nominal = counts.attention / 120e6
        evidence.append(
            Evidence(
                on="andrea-120m, whole model",
                how="exact",
                finding="holds" if QUARTER[0] <= share <= QUARTER[1] else "fails",
                text=f"{share:.1%} of the {counts.unique:,} parameters that it has ({nominal:.1%} of the 120 M of its "
                f"name); about a quarter is taken as {QUARTER[0]:.0%} to {QUARTER[1]:.0%}",
                numbers={
                    "attention_share": share,
                    "unique": counts.unique,
                    "share_of_120_million": nominal,
                    "quarter": QUARTER,
                    "named_millions": 120,
                },
            )
        )
    shares = {name: found for name, one in presets().items() if (found := one.parameters().attention_share)}
    quarter = sorted(name for name, one in shares.items() if QUARTER[0] <= one <= QUARTER[1])
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    evidence.append(
        Evidence(
            on=f"the {len(shares)} models known here that can be counted whole",
            how="exact",
            finding="not_testable_here",
            text=f"for comparison: from {shares[least]:.1%} ({least}) to {shares[most]:.1%} ({most}); {QUARTER[0]:.0%} "
            f"to {QUARTER[1]:.0%} in {len(quarter)} of them",
            numbers={"attention_share": shares, "about_a_quarter": len(quarter), "quarter": QUARTER},
        )
    )
    return claim("parameter-count", evidence, depends_on="what counts as the whole model", needs="")
