"""The statements of DESIGN.md section 1, each put to the test: a Finding with the numbers that it rests on."""

from andrea_bench.claims.audit import audit
from andrea_bench.claims.finding import Claim, Evidence

__all__ = ["Claim", "Evidence", "audit"]
