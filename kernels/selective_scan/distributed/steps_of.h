#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/complex.h"
#include "kernels/selective_scan/args.h"
#include "model/box.h"
#include "model/dtype.h"

namespace ssmbench::scan_shards {

/// The same tensors from the first step of a range to its last: strides stay those of all steps.
inline ScanArgs steps_of(const ScanArgs& all, IndexRange range, DType io, bool complex) {
  const auto after = [](const void* data, std::int64_t bytes) -> const void* {
    return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + bytes;
  };
  ScanArgs args = all;
  args.seqlen = range.count();
  const auto element = static_cast<std::int64_t>(size_of(io));
  const std::int64_t of_sequence = range.begin * args.sequence.time * element;
  const std::int64_t of_projection = complex ? std::int64_t{sizeof(Complex)} : element;
  args.u = after(args.u, of_sequence);
  args.delta = after(args.delta, of_sequence);
  args.z = after(args.z, of_sequence);
  args.out = const_cast<void*>(after(args.out, of_sequence));
  args.B = after(args.B, range.begin * args.b_strides.time * of_projection);  // constant: stride 0
  args.C = after(args.C, range.begin * args.c_strides.time * of_projection);
  return args;
}

}  // namespace ssmbench::scan_shards
