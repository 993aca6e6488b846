"""How products of PyTorch become operations of Weir: `matmul` by a matrix of weights, and `batched_matmul`."""

import math

import torch

from weir.dims import Dim
from weir.operands import Folded, rank_of, shape_of
from weir.views import Refused, View, permuted, transposed


class ProductOperations:
    """The translations of products, a part of AtenOperations."""

    def _product(self, x, weight, bias, weight_is_out_in):
        """Returns the product of x [..., k] and one matrix, [n, k] or [k, n]."""
        x = self._views.settle_last(self._real(x))
        weight = self._views.settle_shape(self._views.plain(self._real(self._view(weight))))
        if len(weight.perm) != 2:
            raise Refused("Weir multiplies by a matrix of weights with two dimensions")
        transpose_w = weight_is_out_in == weight.is_straight
        inputs = [x.value, weight.value] + ([self._value(bias)] if bias is not None else [])
        value = self._emit("matmul", inputs, {"transpose_w": True} if transpose_w else {})
        return View(value, x.shape[:-1] + (value.dims[-1],), x.perm)

    def _batched_product(self, a, b):
        """Returns the product of a [..., m, k] and b [..., k, n], with broadcasting of the leading dimensions."""
        shape = torch.broadcast_shapes(shape_of(a)[:-2], shape_of(b)[:-2])
        a, b = self._real(self._leading(a, shape)), self._real(self._leading(b, shape))
        if a.torch_shape[:-2] != b.torch_shape[:-2]:
            if self._is_one_matrix(b):
                return self._product(a, self._views.reshape(b, b.torch_shape[-2:]), None, False)
            if self._is_one_matrix(a):
                matrix = self._views.reshape(a, a.torch_shape[-2:])
                return transposed(self._product(transposed(b), matrix, None, True))
            if a.torch_shape[:-3] == b.torch_shape[:-3] and b.torch_shape[-3] == 1:
                return self._product_of_stack(a, b)
            if a.torch_shape[:-3] == b.torch_shape[:-3] and a.torch_shape[-3] == 1:
                return transposed(self._product_of_stack(transposed(b), transposed(a)))
            raise Refused(f"a product whose leading dimensions differ: {list(a.torch_shape[:-2])} and "
                          f"{list(b.torch_shape[:-2])}; Weir repeats no matrices")
        (first, transpose_a), (second, transpose_b) = self._matrices(a), self._matrices(b)
        attrs = {name: True for name, is_set in (("transpose_a", transpose_a), ("transpose_b", transpose_b)) if is_set}
        return View.of(self._emit("batched_matmul", [first, second], attrs))

    def _product_of_stack(self, a, b):
        """Returns the product of a [..., h, m, k] and b [..., 1, k, n]: the h matrices of a stand below each other."""
        *leading, h, m, k = a.torch_shape
        stack = self._views.reshape(a, (*leading, h * m, k))
        product = self._batched_product(stack, self._without_dim(b, len(leading)))
        return self._views.reshape(product, (*leading, h, m, product.torch_shape[-1]))

    def _leading(self, x, shape):
        """Returns an operand as a view of rank len(shape) + 2. Constants of several matrices repeat to `shape`."""
        if isinstance(x, Folded):
            is_one = all(size == 1 for size in x.tensor.shape[:-2])
            leading = (1,) * len(shape) if is_one else shape
            return View.of(self.constant(x.tensor.expand(*leading, *x.tensor.shape[-2:])))
        if x.groups:
            x = self._with_copies(x)
        if x.is_repeated and any(count != 1 for count in x.repeats[-2:]):
            raise Refused("Weir has no operation that repeats elements; a product takes matrices as they are")
        x = View(x.value, x.shape, x.perm)
        missing = len(shape) + 2 - len(x.perm)
        return self._views.reshape(x, (1,) * missing + x.torch_shape) if missing else x

    def _with_copies(self, x):
        """Returns a view with repeated heads as a view of a value that holds them as often as PyTorch sees them."""
        if x.perm[-2] > x.perm[-1]:
            return transposed(self._with_copies(transposed(x)))
        axis, count = x.groups
        bare = self._views.settle(View(x.value, x.shape, x.perm))
        one = self._emit("reshape", [bare], {"to": bare.dims[:axis + 1] + (Dim(1),) + bare.dims[axis + 1:]})
        many = self._emit("concat", [one] * count, {"axis": axis + 1})
        to = bare.dims[:axis] + (Dim(x.torch_shape[axis]),) + bare.dims[axis + 1:]
        value = self._emit("reshape", [many], {"to": to})
        self._copies[value] = x
        return View.of(value)

    @staticmethod
    def _is_one_matrix(x):
        return all(size == 1 for size in x.torch_shape[:-2])

    def _matrices(self, x):
        """Returns (the value with PyTorch's leading dimensions, whether its matrices are transposed)."""
        is_transposed = x.perm[-2] > x.perm[-1]
        return self._views.settle(transposed(x) if is_transposed else x), is_transposed

    def op_linear(self, node, given):
        return self._product(self._view(given["input"]), given["weight"], given.get("bias"), True)

    def op_matmul(self, node, given):
        a, b = given["self"], given.get("other", given.get("mat2"))
        if rank_of(a) == 1 or rank_of(b) == 1:
            return self._vector_product(node, a, b)
        if rank_of(b) == 2 and not isinstance(a, Folded):
            return self._product(a, b, None, False)
        if rank_of(a) == 2:
            b = self._view(b)
            return transposed(self._product(transposed(b), a, None, True))
        attention = self._attention_by_hand(a, b) if isinstance(a, View) else None
        return self._batched_product(a, b) if attention is None else attention

    op_mm = op_bmm = op_matmul

    def _vector_product(self, node, a, b):
        """Returns a product with a vector as a product with a matrix of one row or column."""
        a, b = self._view(a), self._view(b)
        rows, columns = rank_of(a) == 1, rank_of(b) == 1
        a = self._views.reshape(a, (1, *a.torch_shape)) if rows else a
        b = self._views.reshape(b, (*b.torch_shape, 1)) if columns else b
        result = self.op_matmul(node, {"self": a, "other": b})
        shape = result.torch_shape
        return self._views.reshape(result, shape[:-2] + shape[-2:][rows:2 - columns])

    def op_einsum(self, node, given):
        """The product of two tensors: letters in both are matrices that correspond, or are summed."""
        terms, _, output = given["equation"].replace(" ", "").partition("->")
        terms = terms.split(",")
        if len(terms) != 2 or not output or any("." in term or len(set(term)) < len(term) for term in (*terms, output)):
            raise Refused("Weir has einsum of two tensors, with an output, each letter at most once in a tensor")
        first, second = terms
        batch = [letter for letter in output if letter in first and letter in second]
        summed = [letter for letter in first if letter in second and letter not in output]
        rows, columns = ([letter for letter in term if letter not in other]
                         for term, other in ((first, second), (second, first)))
        if any(letter not in output for letter in rows + columns):
            raise Refused("an einsum that sums a letter of one tensor alone; sum this tensor before")
        length = {letter: size for term, x in zip(terms, given["tensors"]) for letter, size in zip(term, shape_of(x))}

        def merged(letters):
            return math.prod(length[letter] for letter in letters)

        leading = [length[letter] for letter in batch]
        # Without matrices that correspond, the second tensor is one matrix, and the rows may keep their dimensions.
        of_rows = [merged(rows)] if batch else [length[letter] for letter in rows]
        a = self._arranged(given["tensors"][0], first, batch + rows + summed, (*leading, *of_rows, merged(summed)))
        b = self._arranged(given["tensors"][1], second, batch + summed + columns,
                           (*leading, merged(summed), merged(columns)))
        made = batch + rows + columns
        result = self._views.reshape(self.op_matmul(node, {"self": a, "other": b}), [length[item] for item in made])
        return permuted(result, [made.index(letter) for letter in output])

    def _arranged(self, x, term, letters, shape):
        """Returns an operand of einsum with its dimensions in the order of `letters`, under the sizes `shape`."""
        order = [term.index(letter) for letter in letters]
        if isinstance(x, Folded):
            return Folded(x.tensor.permute(order).reshape(shape))
        return self._views.reshape(permuted(x, order), shape)

    def op_addmm(self, node, given):
        if given["alpha"] != 1 or given["beta"] != 1 or rank_of(given["self"]) != 1:
            return self._added_product(node, given, given["mat1"], given["mat2"])
        return self._product(self._view(given["mat1"]), given["mat2"], given["self"], False)

    def op_baddbmm(self, node, given):
        return self._added_product(node, given, given["batch1"], given["batch2"])

    def _added_product(self, node, given, a, b):
        product = self._times(self.op_matmul(node, {"self": a, "other": b}), given["alpha"])
        if given["beta"] == 0:
            return product
        return self._binary("add", self._times(given["self"], given["beta"]), product)
