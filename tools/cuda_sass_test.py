#!/usr/bin/env python3
"""Tests of cuda_sass.py, on machine code as nvdisasm prints it."""

import sys
import pathlib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cuda_sass  # noqa: E402: it is in this folder

# Two nested loops. The code at the end that the inner loop jumps to and returns from is no loop,
# and neither is the called function or the branch after the end.
CODE = """
	.section	.text.First,"ax",@progbits
.text.First:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0030*/                   LDG.E.U16 R8, desc[UR4][R2.64+0x10] ;
        /*0040*/                   LDGSTS.E.BYPASS.128 [R2], desc[UR6][R10.64] ;
        /*0050*/                   IDP.4A.S8.S8 R9, R4, R5, R9 ;
        /*0060*/                   IDP.4A.S8.S8 R9, R4, R6, R9 ;
        /*0070*/               @P2 BRA `(.L_x_4) ;
.L_x_5:
        /*0080*/                   BRA P1, `(.L_x_2) ;
        /*0090*/                   IDP.4A.S8.S8 R9, R4, R7, R9 ;
.L_x_1:
        /*00a0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00b0*/               @P0 BRA `(.L_x_0) ;
        /*00c0*/                   EXIT ;
.L_x_4:
        /*00d0*/                   IADD3 R9, R9, 0x1, RZ ;
        /*00e0*/                   BRA `(.L_x_5) ;
.L_x_6:
        /*00f0*/                   IDP.4A.S8.S8 R9, R4, R7, R9 ;
        /*0100*/               @P0 BRA `(.L_x_6) ;
        /*0110*/                   RET.REL.NODEC R2 `(.text.First) ;
.L_x_3:
        /*0120*/                   BRA `(.L_x_3);
	.section	.text.Second,"ax",@progbits
.text.Second:
        /*0000*/                   IMMA.16832.S8.S8 R8, R4.ROW, R2.COL, R8 ;
        /*0010*/                   EXIT ;
"""


class CudaSassTest(unittest.TestCase):
    def setUp(self):
        self.kernels = cuda_sass.parse(CODE)

    def test_kernels_and_their_labels_are_found(self):
        self.assertEqual(list(self.kernels), ["First", "Second"])
        code, labels = self.kernels["First"]
        self.assertEqual(len(code), 19)
        self.assertEqual(code[2].predicate, "@!P0")
        self.assertEqual(labels[".L_x_1"], 0xa0)

    def test_loops_are_what_leads_back(self):
        bodies, blocks = cuda_sass.loops(*self.kernels["First"])
        spans = sorted([sorted(blocks[n][0].at for n in body) for body in bodies])
        self.assertEqual(spans, [[0x10, 0x30, 0x80, 0x90, 0xa0, 0xd0], [0x30, 0x80, 0xd0]])

    def test_the_hot_loop_is_where_most_work_is_done(self):
        figures = cuda_sass.figures(*self.kernels["First"], "IDP")
        self.assertEqual(figures.instructions, 8)
        self.assertEqual(figures.multiplies, 8)
        self.assertEqual(figures.per_32, 32)
        self.assertEqual((figures.wide_loads, figures.copies, figures.narrow_loads), (1, 1, 1))
        self.assertEqual(figures.barriers, 0)

    def test_work_outside_of_loops_has_none(self):
        self.assertIsNone(cuda_sass.figures(*self.kernels["Second"], "IMMA"))
        tile = self.kernels["Second"][0][0]
        self.assertEqual(cuda_sass.multiply_adds(tile), 128)

    def test_loads_that_are_under_way_together_are_one_wait(self):
        code, _ = cuda_sass.parse("""
.text.Waits:
        /*0000*/                   LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0010*/                   LDG.E R6, desc[UR4][R2.64+0x8] ;
        /*0020*/                   IADD3 R8, R2, 0x1, RZ ;
        /*0030*/                   FADD R7, R5, R6 ;
        /*0040*/                   LDG.E R9, desc[UR4][R4.64] ;
        /*0050*/                   LDG.E R10, desc[UR4][R8.64] ;
        /*0060*/                   FADD R7, R7, R9 ;
        /*0070*/                   FADD R7, R7, R10 ;
""")["Waits"]
        load, step = cuda_sass.LATENCIES["LDG"], cuda_sass.SPACING
        self.assertEqual(cuda_sass.cycles_of(code[:4]), load + 2 * step)
        self.assertEqual(cuda_sass.cycles_of(code), 2 * load + 4 * step)


if __name__ == "__main__":
    unittest.main()
