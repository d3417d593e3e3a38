// cpu-scalar: the plain loop of the definition, one step after the other on one thread; the channels of a
// step are neighbours in memory.

#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/linear_scan/bind.h"

namespace ssmbench::scalar_linear {
namespace {

template <class Io>
void scan(const LinearScanArgs& args) {
  using Storage = typename Io::Storage;
  const auto* a = static_cast<const Storage*>(args.a);
  const auto* b = static_cast<const Storage*>(args.b);
  auto* out = static_cast<Storage*>(args.out);
  std::vector<float> state(args.dim);
  for (std::int64_t batch = 0; batch < args.batch; ++batch) {
    state.assign(args.dim, 0.0F);
    for (std::int64_t t = 0; t < args.seqlen; ++t) {
      const std::int64_t step = (batch * args.seqlen + t) * args.dim;
      for (std::int64_t d = 0; d < args.dim; ++d) {
        state[d] = Io::load(a[step + d]) * state[d] + Io::load(b[step + d]);
        out[step + d] = Io::store(state[d]);
      }
    }
  }
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  const LinearScanArgs args = bind_linear_scan(problem, tensors);
  return with_io_type(problem.dtype(),
                      [&args](auto io) -> Launch { return [args](void*) { scan<decltype(io)>(args); }; });
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "linear_scan",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential loop, one thread",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::scalar_linear
