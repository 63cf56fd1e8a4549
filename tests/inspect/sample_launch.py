"""How the sample attention of sample_kernels.py is launched: types, and constants of several shapes.

Not in conftest.py: other folders have one too, and Python imports but one module of that name.
"""

TYPES = "*bf16,*bf16,*bf16,*bf16,i32,i32"
EXACT = {"head_dim": 72, "wide": 64, "narrow": 16, "block_m": 64, "block_n": 32, "hint": True}
PADDED = {**EXACT, "wide": 128, "narrow": 0}
# Useful matrix FLOPs of one iteration: Q K^T and P V of a block_m x block_n tile at head_dim.
USEFUL_72 = 2 * 2 * 64 * 32 * 72
POINTERS = ["q", "k", "v", "out"]
