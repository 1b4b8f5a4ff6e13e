"""Sums of products, C += A B, with the sums in the processor's registers; and what else vectors do.

C and B are kept in panels as wide as a vector, (panels, rows, LANES), so that memory is read in the
order in which it lies. A piece of C, a few rows of a few panels, stays in registers while the sum
runs along A and B.
"""

from contextlib import contextmanager

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
FEW, BESIDE = 2, 4  # the same of a piece of `sparse`


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
    lanes = VECTOR // a.itemsize
    if a.shape[0] == lanes and a.shape[1] == lanes:
        turn_square(a, b)  # type: ignore[call-arg]
    else:
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                b[j, i] = a[i, j]


@intrinsic
def add_piece(typing, c, to, a, b, of, panel, low, rows, vectors):
    """The same for `vectors` panels from `panel` on and `rows` rows from `low` on. If `of` is
    uint64, it has a bit for each column of a: c[:, to] += a[to, of] b[:, of]."""
    return types.void(c, to, a, b, of, panel, low, rows, vectors), sums_of_products(c, of)


@intrinsic
def look_at_piece(typing, c, to, a, b, of, panel, low, rows, vectors, seen):
    return types.void(c, to, a, b, of, panel, low, rows, vectors, seen), sums_of_products(c, of)


@intrinsic
def not_zero(typing, a, row, column):
    """Which numbers of the vector that begins at a[row, column] are not zero: bits, the first is
    the lowest."""

    def generate(target, builder, signature, arguments):
        array, word = (
            cgutils.create_struct_proxy(signature.args[0])(target, builder, arguments[0]),
            ir.IntType(64),
        )
        place = cgutils.get_item_pointer(target, builder, signature.args[0], array, arguments[1:])
        vector = ir.VectorType(target.get_value_type(a.dtype), VECTOR * 8 // a.dtype.bitwidth)
        values = builder.load(
            builder.bitcast(place, vector.as_pointer()), align=a.dtype.bitwidth // 8
        )
        found = builder.fcmp_unordered("!=", values, ir.Constant(vector, [0.0] * vector.count))
        return builder.zext(builder.bitcast(found, ir.IntType(vector.count)), word)

    return types.uint64(a, row, column), generate


@intrinsic
def turn_square(typing, a, b):
    """b = a^T, as many vectors as one has numbers, in registers: halves change places, then halves
    of these."""

    def generate(target, builder, signature, arguments):
        arrays = [
            cgutils.create_struct_proxy(t)(target, builder, x)
            for t, x in zip(signature.args, arguments, strict=True)
        ]
        size = a.dtype.bitwidth // 8
        vector = ir.VectorType(target.get_value_type(a.dtype), VECTOR // size)

        def line(which, i):
            kind, array, at = (
                signature.args[which],
                arrays[which],
                [ir.IntType(64)(i), ir.IntType(64)(0)],
            )
            return builder.bitcast(
                cgutils.get_item_pointer(target, builder, kind, array, at), vector.as_pointer()
            )

        lines, half = (
            [builder.load(line(0, i), align=size) for i in range(vector.count)],
            vector.count // 2,
        )
        while half:
            for i in (i for i in range(vector.count) if not i & half):
                pair, places = (lines[i], lines[i + half]), range(vector.count)
                low = [vector.count + p - half if p & half else p for p in places]
                high = [vector.count + p if p & half else p + half for p in places]
                lines[i], lines[i + half] = (
                    builder.shuffle_vector(
                        *pair, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), which)
                    )
                    for which in (low, high)
                )
            half //= 2
        for i, turned in enumerate(lines):
            builder.store(turned, line(1, i), align=size)
        return target.get_dummy_value()

    return types.void(a, b), generate


def sums_of_products(c, of):
    """A piece in the compiler's own terms, so that the sums stay in registers. One loop over k for
    every size that a piece may have."""
    real, size, in_bits = c.dtype, c.dtype.bitwidth // 8, of.dtype == types.uint64

    def generate(target, builder, signature, arguments):
        word, number = ir.IntType(64), target.get_value_type(real)
        vector = ir.VectorType(number, VECTOR // size)
        nothing, nought = (
            ir.Constant(vector, ir.Undefined),
            ir.Constant(vector, [0.0] * (VECTOR // size)),
        )
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
        fma = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector] * 3),
            f"llvm.fma.v{vector.count}f{real.bitwidth}",
        )
        arrays = [
            cgutils.create_struct_proxy(t)(target, builder, x)
            for t, x in zip(signature.args[:5], arguments[:5], strict=True)
        ]
        seen = [
            cgutils.create_struct_proxy(t)(target, builder, x)
            for t, x in zip(signature.args[9:], arguments[9:], strict=True)
        ]
        C, TO, A, B, OF = (builder.ptrtoint(array.data, word) for array in arrays)
        c_panel, c_row, _ = cgutils.unpack_tuple(builder, arrays[0].strides, 3)
        a_row, a_column = cgutils.unpack_tuple(builder, arrays[2].strides, 2)
        b_panel, b_row, _ = cgutils.unpack_tuple(builder, arrays[3].strides, 3)
        (length,) = cgutils.unpack_tuple(builder, arrays[4].shape, 1)
        panel, low, rows, vectors = arguments[5:9]

        def plus(address, stride, times):
            times = ir.Constant(word, times) if isinstance(times, int) else times
            return builder.add(address, builder.mul(stride, times))

        def at(address, kind):
            return builder.inttoptr(address, kind.as_pointer())

        def broadcast(address):
            alone = builder.insert_element(nothing, builder.load(at(address, number)), word(0))
            return builder.shuffle_vector(alone, nothing, everywhere)

        def entry(table, i):
            return builder.load(at(plus(table, word(8), i), word))

        @contextmanager
        def each():
            """Of a's columns and b's rows."""
            with cgutils.for_range(builder, length) as loop:
                if not in_bits:
                    yield loop.index, entry(OF, loop.index)
                    return
                left = cgutils.alloca_once_value(builder, entry(OF, loop.index))
                again, inside, over = (
                    builder.append_basic_block(name) for name in ("again", "bit", "over")
                )
                builder.branch(again)
                builder.position_at_end(again)
                now = builder.load(left)
                builder.cbranch(builder.icmp_unsigned("!=", now, word(0)), inside, over)
                builder.position_at_end(inside)
                k = builder.add(
                    builder.mul(loop.index, word(64)), builder.cttz(now, ir.IntType(1)(1))
                )
                builder.store(builder.and_(now, builder.sub(now, word(1))), left)
                yield k, k
                builder.branch(again)
                builder.position_at_end(over)

        C, B = plus(C, c_panel, panel), plus(B, b_panel, panel)
        done = builder.append_basic_block("done")
        which = builder.switch(builder.add(builder.mul(rows, word(8)), vectors), done)
        sizes = {
            (m, n)
            for n in range(1, VECTORS + 1)
            for m in (*range(1, ROWS + 1), ROWS * (VECTORS // n))
        }
        few = {(m, n) for n in range(1, BESIDE + 1) for m in range(1, FEW + 1)}
        for m, n in sorted(few if in_bits else sizes):
            which.add_case(word(8 * m + n), block := builder.append_basic_block(f"piece{m}x{n}"))
            builder.position_at_end(block)
            to = [entry(plus(TO, word(8), low), i) for i in range(m)]
            lines = [plus(C, c_row, row) for row in to]
            places = [at(plus(line, c_panel, j), vector) for line in lines for j in range(n)]
            sums = [cgutils.alloca_once(builder, vector) for _ in places]
            for place, total in zip(places, sums, strict=True):
                builder.store(nought if seen else builder.load(place, align=size), total)
            mine = [
                plus(A, a_row, row if in_bits else builder.add(low, word(i)))
                for i, row in enumerate(to)
            ]
            with each() as (column, row):
                left, right = [plus(line, a_column, column) for line in mine], plus(B, b_row, row)
                factors = [
                    builder.load(at(plus(right, b_panel, j), vector), align=size) for j in range(n)
                ]
                for i in range(m):
                    one = broadcast(left[i])
                    for total, factor in zip(sums[i * n :], factors, strict=False):
                        builder.store(builder.call(fma, [one, factor, builder.load(total)]), total)
            if seen:
                kept = [at(builder.ptrtoint(seen[0].data, word), vector)]
                kept.append(builder.gep(kept[0], [word(1)]))
                along, long = (builder.load(each, align=size) for each in kept)
                for place, total in zip(places, sums, strict=True):
                    total = builder.load(total)
                    along = builder.call(fma, [total, builder.load(place, align=size), along])
                    long = builder.call(fma, [total, total, long])
                for address, result in zip(kept, (along, long), strict=True):
                    builder.store(result, address, align=size)
            else:
                for place, total in zip(places, sums, strict=True):
                    builder.store(builder.load(total), place, align=size)
            builder.branch(done)
        builder.position_at_end(done)
        return target.get_dummy_value()

    return generate
