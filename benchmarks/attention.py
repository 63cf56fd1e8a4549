from andrea_bench import asv_adapter


class Attention(asv_adapter.SuiteBenchmark):
    suite = "attention"
