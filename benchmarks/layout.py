from andrea_bench import asv_adapter


class Layout(asv_adapter.SuiteBenchmark):
    suite = "layout"
