"""What is counted in the text of a compiled program, in programs by hand."""

from jaxtrain.plugins.plan.program import read_program
from tests.helpers.rows import each_row

# A loop of five passes over a kernel that reads 400 bytes and writes 400.
LOOP = """HloModule loop, is_scheduled=true

%body (p: (s32[], f32[100])) -> (s32[], f32[100]) {
  %p = (s32[], f32[100]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[100]{0} get-tuple-element(%p), index=1
  %double = f32[100]{0} fusion(%x), kind=kLoop, calls=%doubled
  ROOT %out = (s32[], f32[100]{0}) tuple(%i, %double)
}

%condition (q: (s32[], f32[100])) -> pred[] {
  %q = (s32[], f32[100]{0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (a: (s32[], f32[100])) -> (s32[], f32[100]) {
  %a = (s32[], f32[100]{0}) parameter(0)
  ROOT %while = (s32[], f32[100]{0}) while(%a), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
}
"""

# One branch has two kernels, the other has one: the longer counts.
BRANCHES = """HloModule branches, is_scheduled=true

%short (p: f32[10]) -> f32[10] {
  %p = f32[10]{0} parameter(0)
  ROOT %copy.1 = f32[10]{0} copy(%p)
}

%long (q: f32[10]) -> f32[10] {
  %q = f32[10]{0} parameter(0)
  %copy.2 = f32[10]{0} copy(%q)
  ROOT %copy.3 = f32[10]{0} copy(%copy.2)
}

ENTRY %main (choice: s32[], a: f32[10]) -> f32[10] {
  %choice = s32[] parameter(0)
  %a = f32[10]{0} parameter(1)
  ROOT %chosen = f32[10]{0} conditional(%choice, %a, %a), \
branch_computations={%short, %long}
}
"""

# A reduce-scatter that a kernel may hide, and an all-reduce that nothing does.
WAITS = """HloModule waits, is_scheduled=true, num_partitions=4

%async (p: f32[400]) -> f32[100] {
  %p = f32[400]{0} parameter(0)
  ROOT %scatter = f32[100]{0} reduce-scatter(%p), replica_groups={{0,1,2,3}}, \
dimensions={0}, to_apply=%add
}

ENTRY %main (a: f32[400], b: f32[300]) -> f32[100] {
  %a = f32[400]{0} parameter(0)
  %b = f32[300]{0} parameter(1)
  %start = ((f32[400]{0}), f32[100]{0}) async-start(%a), calls=%async
  %meanwhile = f32[300]{0} copy(%b)
  %done = f32[100]{0} async-done(%start)
  %begin = f32[300]{0} all-reduce-start(%meanwhile), replica_groups={{0,1,2,3}}, \
to_apply=%add
  %view = f32[3,100]{1,0} bitcast(%b)
  %end = f32[300]{0} all-reduce-done(%begin)
  ROOT %sum = f32[100]{0} fusion(%done, %end), kind=kLoop, calls=%added
}
"""

# (8, 16, 16, 4) by 3x3 kernels to (8, 16, 16, 32): 2 x 65,536 x 36 FLOPs each way.
SMALL, KERNEL, LARGE = "bf16[8,16,16,4]", "bf16[32,3,3,4]", "bf16[8,16,16,32]"
CONV = 2 * (8 * 16 * 16 * 32) * (3 * 3 * 4)
WINDOW = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f"


def program(lines: str, *arrays: str) -> str:
    params = "\n".join(
        f"  %p{i} = {array} parameter({i})" for i, array in enumerate(arrays)
    )
    return f"ENTRY %main (p: f32[]) -> f32[] {{\n{params}\n{lines}\n}}\n"


def test_a_loop_counts_as_often_as_it_runs():
    found = read_program(LOOP)
    assert found.num_kernels == 5 and found.hbm_bytes == 5 * 800


def test_the_longest_branch_counts():
    found = read_program(BRANCHES)
    assert found.num_kernels == 2 and found.hbm_bytes == 2 * 80


def test_what_may_hide_a_collective():
    found = read_program(WAITS)
    overlapped = [(c.kind, c.overlapped) for c in found.collectives]
    assert overlapped == [("reduce-scatter", True), ("all-reduce", False)]
    # Both collectives, the copy and the fusion; no view, no wait.
    assert found.num_kernels == 4


@each_row(
    ("target", "first", "second", "result"),
    [
        ("Forward", SMALL, KERNEL, LARGE),
        ("BiasActivationForward", SMALL, KERNEL, LARGE),
        ("BackwardInput", LARGE, KERNEL, SMALL),
        ("BackwardFilter", SMALL, LARGE, KERNEL),
    ],
)
def test_flops_of_a_convolution(target: str, first: str, second: str, result: str):
    line = (
        f"  ROOT %conv = ({result}, u8[0]{{0}}) custom-call(%p0, %p1), {WINDOW}, "
        f'custom_call_target="__cudnn$conv{target}"'
    )
    found = read_program(program(line, first, second))
    assert found.flops == CONV
    arrays = (8 * 16 * 16 * 4, 32 * 3 * 3 * 4, 8 * 16 * 16 * 32)
    assert found.hbm_bytes == 2 * sum(arrays)


def test_flops_of_a_convolution_in_groups():
    """Of 32 groups: each output has the products of one channel."""
    line = (
        f"  ROOT %conv = (bf16[8,16,16,32], u8[0]{{0}}) custom-call(%p0, %p1), "
        f"{WINDOW}, feature_group_count=32, "
        'custom_call_target="__cudnn$convForward"'
    )
    found = read_program(program(line, "bf16[8,16,16,32]", "bf16[32,3,3,1]"))
    assert found.flops == 2 * (8 * 16 * 16 * 32) * 9


def test_flops_of_matrix_products():
    """Of 64x128 by 128x10: in a fusion, and by cuBLAS."""
    flops = 2 * 64 * 10 * 128
    fused = """%product (l: f32[64,128], r: f32[128,10]) -> f32[64,10] {
  %l = f32[64,128]{1,0} parameter(0)
  %r = f32[128,10]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,10]{1,0} dot(%l, %r), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}
}

"""
    line = "  ROOT %f = f32[64,10]{1,0} fusion(%p0, %p1), kind=kCustom, calls=%product"
    shapes = "f32[64,128]{1,0}", "f32[128,10]{1,0}"
    assert read_program(fused + program(line, *shapes)).flops == flops
    line = (
        "  ROOT %g = (f32[64,10]{1,0}, s8[100]{0}) custom-call(%p0, %p1), "
        'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":'
        '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
    )
    assert read_program(program(line, *shapes)).flops == flops
