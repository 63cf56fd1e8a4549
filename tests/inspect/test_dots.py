"""Which products of the IR are Q K^T and P V, and how wide; from TTIR written by hand."""

import pytest

from andrea_bench.inspect import dots

FORWARD = """
module {
  tt.func public @f(%q: !tt.ptr<bf16> loc("q"(#loc)), %n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %early = tt.dot %a, %b, %z : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32> loc(#loc1)
    %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %z, %mx = %m) -> (tensor<64x64xf32>)  : i32 {
      %s = tt.dot %q0, %k0, %z : tensor<64x64xbf16> * tensor<64x32xbf16> -> tensor<64x32xf32> loc(#loc2)
      %s_1 = tt.dot %q1, %k1, %s, inputPrecision = tf32 : tensor<64x16xbf16> * tensor<16x32xbf16> -> tensor<64x32xf32>
      %top = "tt.reduce"(%s_1) <{axis = 1 : i32}> ({
      ^bb0(%x: f32 loc(unknown), %y: f32 loc(unknown)):
        %big = arith.maxnumf %x, %y : f32 loc(#loc3)
        tt.reduce.return %big : f32 loc(#loc3)
      }) : (tensor<64x32xf32>) -> tensor<64xf32> loc(#loc3)
      %low = arith.subf %s_1, %top : tensor<64x32xf32>
      %p = math.exp2 %low : tensor<64x32xf32> loc(#loc4)
      %p_2 = arith.truncf %p : tensor<64x32xf32> to tensor<64x32xbf16>
      %acc_3 = tt.dot %p_2, %v0, %acc : tensor<64x32xbf16> * tensor<32x64xbf16> -> tensor<64x64xf32>
      %acc_4 = tt.dot %p_2, %v1, %acc9 : tensor<64x32xbf16> * tensor<32x16xbf16> -> tensor<64x16xf32>
      scf.yield %acc_3, %top : tensor<64x64xf32>, tensor<64xf32> loc(#loc5)
    } loc(#loc6)
    tt.return loc(#loc7)
  } loc(#loc)
} loc(#loc)
"""

# dK and dV of a tile: S and P again, dV = P^T dO, dP = V dO^T, dS from both, dK = dS Q.
BACKWARD = """
    %r:2 = scf.for %j = %c0 to %n step %c1 iter_args(%dk = %z, %dv = %z) -> (tensor<32x80xf32>)  : i32 {
      %st = tt.dot %k, %qt, %z : tensor<32x80xf16> * tensor<80x64xf16> -> tensor<32x64xf32>
      %low = arith.subf %st, %lse : tensor<32x64xf32>
      %pt = math.exp2 %low : tensor<32x64xf32>
      %pt_1 = arith.truncf %pt : tensor<32x64xf32> to tensor<32x64xf16>
      %dv_2 = tt.dot %pt_1, %do, %dv : tensor<32x64xf16> * tensor<64x80xf16> -> tensor<32x80xf32>
      %dpt = tt.dot %v, %dot, %z : tensor<32x80xf16> * tensor<80x64xf16> -> tensor<32x64xf32>
      %less = arith.subf %dpt, %delta : tensor<32x64xf32>
      %dst = arith.mulf %pt, %less : tensor<32x64xf32>
      %dst_3 = arith.truncf %dst : tensor<32x64xf32> to tensor<32x64xf16>
      %dk_4 = tt.dot %dst_3, %q, %dk : tensor<32x64xf16> * tensor<64x80xf16> -> tensor<32x80xf32>
      scf.yield %dk_4, %dv_2 : tensor<32x80xf32>, tensor<32x80xf32>
    }
"""


def test_split_width_forward():
    found = dots.loop_dots(FORWARD)
    assert [(d.m, d.n, d.k, d.role) for d in found] == [
        (64, 32, 64, "qk"), (64, 32, 16, "qk"), (64, 64, 32, "pv"), (64, 16, 32, "pv")
    ]  # fmt: skip
    assert (dots.width_qk(found), dots.width_pv(found)) == (80, 80)
    assert sum(d.flops for d in found) == 2 * 2 * 64 * 32 * 80


def test_backward_counts_each_width_once():
    found = dots.loop_dots(BACKWARD)
    assert [d.role for d in found] == ["qk", "pv", None, None]
    assert (dots.width_qk(found), dots.width_pv(found)) == (80, 80)


def test_no_product_is_not_a_width_of_zero():
    assert dots.loop_dots("%a = arith.addf %b, %c : f32") == []
    assert dots.width_qk([]) is None
    assert dots.width_pv([]) is None


@pytest.mark.parametrize(
    ("precision", "products"), [("ieee", 0), ("tf32", 1), ("tf32x3", 3), ("bf16x6", 6)]
)  # fmt: skip
def test_float32_products_by_precision(precision: str, products: int):
    said = "" if precision == "ieee" else f", inputPrecision = {precision}"
    text = f"%d = tt.dot %a, %b, %c{said} : tensor<64x32xf32> * tensor<32x16xf32> -> tensor<64x16xf32>"
    (found,) = dots.loop_dots(text)
    assert found.products == products
    assert found.flops == products * 2 * 64 * 16 * 32


def test_products_that_warps_repeat():
    ttgir = """
#blocked = #ttg.blocked<{sizePerThread = [1, 8], warpsPerCTA = [4, 1]}>
#mma = #ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>
#mma1 = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [8, 1], instrShape = [16, 64, 16]}>
    %a = tt.dot %x, %y, %z : tensor<128x16xf16, #l> * tensor<16x64xf16, #l> -> tensor<128x64xf32, #mma> loc(#loc1)
    %b = tt.dot %x, %y, %z : tensor<16x16xf16, #l> * tensor<16x32xf16, #l> -> tensor<16x32xf32, #mma> loc(#loc1)
    %c = ttng.warp_group_dot %x, %y, %z : !ttg.memdesc<64x16xf16> * !ttg.memdesc<16x64xf16> -> tensor<64x64xf32, #mma1>
"""
    # 4 warps of 16 rows each: 128 rows are theirs, 16 rows are done by all four; 8 warps do 64 rows twice.
    assert dots.repetitions(ttgir) == {(128, 64): 1, (16, 32): 4, (64, 64): 2}
