// Kernels for tests of the runtime whose results depend on all of their inputs: integers are mixed
// so that another order, another slot or another act gives other bits.
//
//   test_mix(in...) -> out            out[i] = mix of all in[i], step, micro-batch, key
//   test_fold(in...) -> acc           acc[i] = acc[i] * 31 + mix of all in[i]; order shows
//   test_accumulate(in) -> acc        micro-batch 0: acc = in; else acc = acc * 31 + in
//   test_pack(in) -> message          chunk c: elements [c * E, ...) of in, E = attr elements
//   test_unpack(message) -> out       chunk c: puts them back
//   test_sizes(message) -> out        out[chunk] = bytes of the message
//   test_to_float(in) -> f32 scalar   in[0] modulo 1000
//   test_throw(in) -> out             throws at step attr step
// All outputs are i32, but that of test_to_float. Link //actors/testing to register the kernels for
// "cpu".
#pragma once

namespace weir::actors {

// Keeps the registrations in the link.
void RegisterTestKernels();

}  // namespace weir::actors
