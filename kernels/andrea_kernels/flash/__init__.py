"""Flash attention in Triton: device code, tiles and the autograd function behind `triton_attention.py`.

Read `forward.py` first, then `backward.py`; `tiles.py` says how large their tiles are on which GPU, and
`function.py` launches them. A folder of its own, so that listing the kernels imports neither torch nor triton.
"""
