"""Sums of products, C += A B, with the sums in the processor's registers; and what else vectors do.

C and B are kept in panels as wide as a vector, (panels, rows, LANES), so that memory is read in the
order in which it lies. A piece of C, a few rows of a few panels, stays in registers while the sum
runs along A and B.

Tested against NumPy, of whole numbers, to the last bit (tests/fast/test_products.py).
"""

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.lib.stride_tricks import as_strided

from fedclust.fast.compiled import compiled

FEATURES = binding.get_host_cpu_features()
WIDE = FEATURES.get("avx512f", False)
VECTOR = 64 if WIDE else 32 if FEATURES.get("avx2", False) else 16  # bytes
ROWS, VECTORS = (5, 4) if WIDE else (4, 2)  # of the piece of C that fits into the registers


@compiled
def in_panels(a, lanes):
    """(rows, columns) -> (panels, rows, lanes), the same memory."""
    size = a.itemsize  # (what NumPy's transpose takes longer to compile than all this file)
    return as_strided(
        a, (a.shape[1] // lanes, a.shape[0], lanes), (lanes * size, a.strides[0], size)
    )


@compiled
def add_product(c, to, a, b, of):
    """c[:, to] += a b[:, of], with c (panels, m, lanes), a (m, k), b (panels, k, lanes), piece by
    piece. One of c and b may have an empty panel more, with room for a bias's 1."""
    panels = min(len(c), len(b))
    for p in range(0, panels, VECTORS):
        wide, low = min(VECTORS, panels - p), 0
        while low < len(to):
            rows = height(len(to) - low, wide)
            add_piece(c, to, a, b, of, p, low, rows, wide)  # type: ignore[call-arg]
            low += rows


@compiled
def look_at_product(c, to, a, b, of, seen):
    """What a b[:, of] = E is to c: seen (2, lanes) += the sums of c[:, to] * E and of E * E, lane
    by lane."""
    panels = min(len(c), len(b))
    for p in range(0, panels, VECTORS):
        wide, low = min(VECTORS, panels - p), 0
        while low < len(to):
            rows = height(len(to) - low, wide)
            look_at_piece(c, to, a, b, of, p, low, rows, wide, seen)  # type: ignore[call-arg]
            low += rows


@compiled
def height(left, wide):
    """Rows of the next piece: narrow pieces are high, and the last ones about the same."""
    high = ROWS * (VECTORS // wide)
    pieces = (left + ROWS - 1) // ROWS
    return high if left >= high else (left + pieces - 1) // pieces


@compiled
def turn(a, b):
    """b = a^T"""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            b[j, i] = a[i, j]


@intrinsic
def add_piece(typing, c, to, a, b, of, panel, low, rows, vectors):
    """The same for `vectors` panels from `panel` on and `rows` rows from `low` on."""
    return types.void(c, to, a, b, of, panel, low, rows, vectors), sums_of_products(c)


@intrinsic
def look_at_piece(typing, c, to, a, b, of, panel, low, rows, vectors, seen):
    return types.void(c, to, a, b, of, panel, low, rows, vectors, seen), sums_of_products(c)


def sums_of_products(c):
    """A piece in the compiler's own terms, so that the sums stay in registers. One loop over k for
    every size that a piece may have."""
    real, size = c.dtype, c.dtype.bitwidth // 8

    def generate(target, builder, signature, arguments):
        word, number = ir.IntType(64), target.get_value_type(real)
        vector = vectors_of(target, real)
        given = arrays(target, builder, signature, arguments)
        C, TO, A, B, OF, *seen = (builder.ptrtoint(array.data, word) for array in given)
        c_panel, c_row, _ = cgutils.unpack_tuple(builder, given[0].strides, 3)
        a_row, a_column = cgutils.unpack_tuple(builder, given[2].strides, 2)
        b_panel, b_row, _ = cgutils.unpack_tuple(builder, given[3].strides, 3)
        (length,) = cgutils.unpack_tuple(builder, given[4].shape, 1)
        panel, low, rows, vectors = arguments[5:9]

        def plus(address, stride, times):
            times = word(times) if isinstance(times, int) else times
            return builder.add(address, builder.mul(stride, times))

        def at(address, kind):
            return builder.inttoptr(address, kind.as_pointer())

        def entry(table, i):
            return builder.load(at(plus(table, word(8), i), word))

        def read(place):
            return builder.load(place, align=size)

        C, B = plus(C, c_panel, panel), plus(B, b_panel, panel)
        done = builder.append_basic_block("done")
        which = builder.switch(builder.add(builder.mul(rows, word(8)), vectors), done)
        sizes = [
            (high, wide)
            for wide in range(1, VECTORS + 1)
            for high in sorted({*range(1, ROWS + 1), ROWS * (VECTORS // wide)})
        ]
        for m, n in sizes:
            which.add_case(word(8 * m + n), block := builder.append_basic_block(f"piece{m}x{n}"))
            builder.position_at_end(block)
            lines = [plus(C, c_row, entry(plus(TO, word(8), low), i)) for i in range(m)]
            places = [at(plus(line, c_panel, j), vector) for line in lines for j in range(n)]
            sums = [cgutils.alloca_once(builder, vector) for _ in places]
            for place, total in zip(places, sums, strict=True):
                nought = ir.Constant(vector, [0.0] * vector.count)
                builder.store(nought if seen else read(place), total)
            mine = [plus(A, a_row, builder.add(low, word(i))) for i in range(m)]
            with cgutils.for_range(builder, length) as loop:
                right = plus(B, b_row, entry(OF, loop.index))
                factors = [read(at(plus(right, b_panel, j), vector)) for j in range(n)]
                for i, line in enumerate(mine):
                    left = builder.load(at(plus(line, a_column, loop.index), number))
                    one = everywhere(builder, left, vector)
                    for total, factor in zip(sums[i * n :], factors, strict=False):
                        builder.store(fma(builder, one, factor, builder.load(total)), total)
            if seen:
                kept = [at(seen[0], vector), builder.gep(at(seen[0], vector), [word(1)])]
                along, long = map(read, kept)
                for place, total in zip(places, map(builder.load, sums), strict=True):
                    along = fma(builder, total, read(place), along)
                    long = fma(builder, total, total, long)
                places, results = kept, [along, long]
            else:
                results = list(map(builder.load, sums))
            for place, result in zip(places, results, strict=True):
                builder.store(result, place, align=size)
            builder.branch(done)
        builder.position_at_end(done)
        return target.get_dummy_value()

    return generate


# ---- for those who write in the compiler's own terms


def arrays(target, builder, signature, arguments):
    """The arrays among the arguments."""
    return [
        cgutils.create_struct_proxy(kind)(target, builder, argument)
        for kind, argument in zip(signature.args, arguments, strict=True)
        if isinstance(kind, types.Array)
    ]


def vectors_of(target, real):
    """A vector's type."""
    return ir.VectorType(target.get_value_type(real), VECTOR * 8 // real.bitwidth)


def everywhere(builder, value, vector):
    """A vector full of it."""
    word = ir.IntType(32)
    alone = builder.insert_element(ir.Constant(vector, ir.Undefined), value, word(0))
    order = ir.Constant(ir.VectorType(word, vector.count), [0] * vector.count)
    return builder.shuffle_vector(alone, alone, order)


def fma(builder, a, b, c):
    """a b + c, rounded once."""
    name = f"llvm.fma.v{a.type.count}{'f32' if a.type.element == ir.FloatType() else 'f64'}"
    kind = ir.FunctionType(a.type, [a.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b, c])
