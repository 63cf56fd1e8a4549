from andrea_bench import asv_adapter


class Alignment(asv_adapter.SuiteBenchmark):
    suite = "alignment"
    head_dims = (63, 64, 65, 72)
    n_heads = (12,)
