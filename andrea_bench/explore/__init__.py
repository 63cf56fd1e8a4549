"""Which (n_head, n_kv_head, head_dim) suits a GPU and a width: every legal split beside the others, ranked."""

from andrea_bench.explore.choice import Choice, Timing
from andrea_bench.explore.setting import Setting, explore_setting
from andrea_bench.explore.splits import Candidates, candidates

__all__ = ["Candidates", "Choice", "Setting", "Timing", "candidates", "explore_setting"]
