from andrea_bench import asv_adapter


class Decode(asv_adapter.SuiteBenchmark):
    suite = "decode"
    n_heads = (12,)
