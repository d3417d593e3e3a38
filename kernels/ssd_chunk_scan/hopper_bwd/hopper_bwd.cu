// cuda-hopper backward: registration. The picture of the kernel is in kernel.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>

#include "base/errors.h"
#include "kernels/common/hopper/device.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/chunked_bwd/chunked_bwd.h"
#include "kernels/ssd_chunk_scan/handed_ends.cuh"
#include "kernels/ssd_chunk_scan/hopper_bwd/halves.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/launch.h"
#include "kernels/ssd_chunk_scan/hopper_bwd/tf32/launch.h"

namespace ssmbench {

extern template void launch_gradient_sums<__half, __half>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                          const ChunkedBwdWorkspace&, cudaStream_t);
extern template void launch_gradient_sums<__nv_bfloat16, __nv_bfloat16>(const SsdBwdArgs&,
                                                                        const ChunkedBwdPlan&,
                                                                        const ChunkedBwdWorkspace&,
                                                                        cudaStream_t);

}  // namespace ssmbench

namespace ssmbench::ssd_hopper_bwd {

extern template Variant variant_for<__half>(int states, bool gated);
extern template Walks make_walks<__half>(const SsdBwdArgs&, const ChunkedBwdPlan&, const ChunkedBwdWorkspace&,
                                         void*);
extern template void launch_walks<__half>(const Walks&, cudaStream_t);
extern template Variant variant_for<__nv_bfloat16>(int states, bool gated);
extern template Walks make_walks<__nv_bfloat16>(const SsdBwdArgs&, const ChunkedBwdPlan&,
                                                const ChunkedBwdWorkspace&, void*);
extern template void launch_walks<__nv_bfloat16>(const Walks&, cudaStream_t);
extern template void launch_all_parts<__half>(const Walks&, cudaStream_t);
extern template void launch_images<__half>(const Walks&, cudaStream_t);
extern template void launch_all_parts<__nv_bfloat16>(const Walks&, cudaStream_t);
extern template void launch_images<__nv_bfloat16>(const Walks&, cudaStream_t);

namespace {

constexpr std::int64_t kMaxStates = 128;

TileKind tiles_of(const Problem& problem) {
  return chunked_bwd_tiles(problem.dtype());
}

std::optional<std::string> unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const bool is_f32 = problem.dtype() == DType::f32;
  const int vector = is_f32 ? 4 : 8;
  if (scan.headdim % vector != 0 || scan.dstate % vector != 0)
    return "needs headdim and dstate that are multiples of " + std::to_string(vector) +
           ": rows of 16-byte vectors";
  if (scan.headdim > kSteps) return "needs headdim of at most 64: a head is one tile";
  if (scan.dstate > kMaxStates)
    return "needs dstate of at most 128: gradients of B and C are held in registers";
  if (is_f32 && scan.dstate <= 64) return "needs dstate above 64 where tensors are f32";
  if (scan.seqlen > 2147483647 - kSteps) return "needs at most 2147483583 steps";
  if (auto reason = chunked_bwd_unsupported(problem, tiles_of(problem))) return reason;
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

/// That of cuda-chunked, and behind it the states that walks hand on.
std::size_t workspace_bytes(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles_of(problem));
  if (problem.dtype() == DType::f32) return plan.bytes;
  const std::int64_t heads = scan.batch * scan.nheads;
  return plan.bytes + walk_handed_layout(heads, walk_parts(heads, plan.chunks), 64 * plan.dstate_tiles).bytes;
}

template <class Io>
Launch launch_of(const Problem& problem, const SsdBwdArgs& bwd, void* workspace) {
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles_of(problem));
  const ChunkedBwdWorkspace arrays = chunked_bwd_arrays(plan, workspace);
  const Variant variant = variant_for<Io>(64 * plan.dstate_tiles, bwd.in.z != nullptr);
  check_cuda(cudaFuncSetAttribute(variant.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  variant.shared_bytes));
  const GradientArgs args = make_args(bwd, plan, arrays);
  const Walks walks = make_walks<Io>(bwd, plan, arrays, static_cast<unsigned char*>(workspace) + plan.bytes);
  return [=](void* stream) {
    auto* const on = static_cast<cudaStream_t>(stream);
    launch_walks<Io>(walks, on);
    launch(variant, args, on);
    launch_gradient_sums<Io, Io>(args.bwd, args.plan, args.workspace, on);
  };
}

Launch tf32_launch_of(const Problem& problem, const SsdBwdArgs& bwd, void* workspace) {
  const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles_of(problem));
  const tf32::Gradients gradients = tf32::make_gradients(bwd, plan, chunked_bwd_arrays(plan, workspace));
  return [=](void* stream) { tf32::launch(gradients, static_cast<cudaStream_t>(stream)); };
}

/// Of tensors that are aligned as TMA needs them.
SsdBwdArgs checked_args(const Problem& problem, const TensorSet& tensors) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const SsdBwdArgs bwd = bind_ssd_bwd(problem, tensors);
  const SsdInputs& in = bwd.in;
  for (const void* tensor : std::array{in.x, in.B, in.C, in.z, bwd.dout, static_cast<const void*>(bwd.dx),
                                       static_cast<const void*>(bwd.dz), static_cast<const void*>(bwd.dB),
                                       static_cast<const void*>(bwd.dC)})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("cuda-hopper needs tensors that are aligned to 16 bytes");
  return bwd;
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const SsdBwdArgs bwd = checked_args(problem, tensors);
  if (problem.dtype() == DType::f32) return tf32_launch_of(problem, bwd, workspace);
  return problem.dtype() == DType::f16 ? launch_of<__half>(problem, bwd, workspace)
                                       : launch_of<__nv_bfloat16>(problem, bwd, workspace);
}

const Registration registration{
    {.name = "cuda-hopper",
     .op = "ssd_chunk_scan_bwd",
     .device = DeviceKind::cuda,
     .summary =
         "all gradients by chunks of 64 steps, products by wgmma, fed by TMA; for compute capability 9.0",
     .arithmetic =
         [](DType io) {
           if (io == DType::f32) return Arithmetic{.math = Math::tf32, .state_dtype = DType::f32};
           return io == DType::f16 ? Arithmetic{.math = Math::f16, .state_dtype = DType::f16}
                                   : Arithmetic{.math = Math::bf16, .state_dtype = DType::bf16};
         },
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind}};

/// Of a walk's head.
struct PlaceOfHead {
  int nheads;
  __device__ TileOfState operator()(std::int64_t sequence, int /*tile*/) const {
    const auto row = static_cast<int>(sequence);
    return {row / nheads, row % nheads, 0};
  }
};

/// Where states of the parts of both walks lie: from zeros, and those that enter parts.
struct HalvesLayout {
  std::size_t own, entering, bytes;
  std::int64_t own_blocks;

  explicit HalvesLayout(const Problem& problem) {
    const SsdChunkScan scan(problem);
    const ChunkedBwdPlan plan = chunked_bwd_plan(problem, tiles_of(problem));
    const std::int64_t heads = scan.batch * scan.nheads;
    const std::int64_t blocks = 2 * heads * walk_parts(heads, plan.chunks);
    own_blocks = blocks;
    for (const std::int64_t walks : {heads, 2 * heads})
      own_blocks = std::max(own_blocks, walks * end_parts(walks, plan.chunks));
    const auto bytes_of_states = [&](std::int64_t of) {
      return static_cast<std::int64_t>(handed_layout(of, 1, kSteps * 64 * plan.dstate_tiles).bytes);
    };
    WorkspaceLayout layout;
    layout.take(static_cast<std::int64_t>(plan.bytes), 1);
    own = layout.take(bytes_of_states(own_blocks), 1);
    entering = layout.take(bytes_of_states(blocks), 1);
    bytes = layout.bytes();
  }
};

template <class Io>
class HopperHalves {
 public:
  HopperHalves(const Problem& problem, const SsdBwdArgs& bwd, void* workspace)
      : plan_(chunked_bwd_plan(problem, tiles_of(problem))),
        variant_(variant_for<Io>(64 * plan_.dstate_tiles, bwd.in.z != nullptr)),
        args_(make_args(bwd, plan_, chunked_bwd_arrays(plan_, workspace))),
        of_parts_(walks(bwd, workspace, HalvesLayout(problem).own, HalvesLayout(problem).own_blocks)),
        of_images_(walks(bwd, workspace, HalvesLayout(problem).entering, 0)) {
    check_cuda(cudaFuncSetAttribute(variant_.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    variant_.shared_bytes));
  }

  void pass(const ThroughShard& through, cudaStream_t stream) const {
    const Walks walks =
        cuts_time() ? of_parts_ : to_ends(through.leaving != nullptr, through.entering != nullptr);
    launch_all_parts<Io>(walks, stream);
    if (through.leaving != nullptr) join(walks.forward, through.state, nullptr, through.leaving, stream);
    if (through.entering != nullptr)
      join(walks.backward, through.gradient, nullptr, through.entering, stream);
  }

  void compute(cudaStream_t stream) const {
    if (cuts_time()) {
      join(of_parts_.forward, of_images_.forward.first, of_images_.forward.handed.states, nullptr, stream);
      join(of_parts_.backward, of_images_.backward.first, of_images_.backward.handed.states, nullptr, stream);
    }
    launch_images<Io>(of_images_, stream);
    ssd_hopper_bwd::launch(variant_, args_, stream);
    launch_gradient_sums<Io, Io>(args_.bwd, args_.plan, args_.workspace, stream);
  }

 private:
  bool cuts_time() const { return of_images_.forward.parts > 1; }

  /// That hand on states in the workspace from `offset` on, with room for `most` blocks there.
  Walks walks(const SsdBwdArgs& bwd, void* workspace, std::size_t offset, std::int64_t most) const {
    auto* const base = static_cast<unsigned char*>(workspace);
    Walks made = make_walks<Io>(bwd, plan_, chunked_bwd_arrays(plan_, workspace), base + offset);
    const std::int64_t blocks = heads_of(made) * made.forward.parts;
    const int states = kSteps * 64 * plan_.dstate_tiles;
    made.forward.handed = handed_states(handed_layout(std::max(2 * blocks, most), 1, states), base + offset);
    made.backward.handed = behind(made.forward.handed, blocks);
    return made;
  }

  /// The walks that are asked for, in parts for what they end with alone.
  Walks to_ends(bool forward, bool backward) const {
    Walks made = of_parts_;
    const std::int64_t heads = heads_of(made);
    const int parts = end_parts((forward && backward ? 2 : 1) * heads, made.forward.chunks);
    made.forward.parts = forward ? parts : 0;
    made.backward.parts = backward ? parts : 0;
    made.forward.end_alone = made.backward.end_alone = true;
    made.backward.handed = behind(made.forward.handed, heads * made.forward.parts);
    return made;
  }

  static std::int64_t heads_of(const Walks& walks) {
    return walks.forward.in.batch * walks.forward.in.nheads;
  }
  /// What comes after `blocks` blocks.
  HandedStates behind(HandedStates handed, std::int64_t blocks) const {
    handed.states += blocks * kSteps * 64 * plan_.dstate_tiles;
    handed.decays += blocks;
    return handed;
  }

  void join(const WalkArgs& walk, const float* entering, float* before, float* leaving,
            cudaStream_t stream) const {
    const SsdInputs& in = walk.in;
    const EndsArgs args{.from = walk.handed,
                        .stride = walk.parts,
                        .of = {in.batch * in.nheads, walk.parts, 1, kSteps * 64 * plan_.dstate_tiles / 4},
                        .nheads = in.nheads,
                        .headdim = in.headdim,
                        .dstate = in.dstate,
                        .entering = entering};
    launch_ends(args, PlaceOfHead{static_cast<int>(in.nheads)}, before, leaving, stream);
  }

  ChunkedBwdPlan plan_;
  Variant variant_;
  GradientArgs args_;
  Walks of_parts_, of_images_;
};

template <class Io>
GradientHalves halves_of(const Problem& problem, const SsdBwdArgs& bwd, void* workspace) {
  const HopperHalves<Io> both(problem, bwd, workspace);
  return {.pass = [both](const ThroughShard& through,
                         void* stream) { both.pass(through, static_cast<cudaStream_t>(stream)); },
          .compute = [both](void* stream) { both.compute(static_cast<cudaStream_t>(stream)); }};
}

}  // namespace

bool has_halves(const Problem& problem) {
  return problem.dtype() != DType::f32 && !unsupported(problem);
}

std::size_t halves_bytes(const Problem& problem) {
  return HalvesLayout(problem).bytes;
}

GradientHalves halves(const Problem& problem, const TensorSet& tensors, void* workspace) {
  const SsdBwdArgs bwd = checked_args(problem, tensors);
  return problem.dtype() == DType::f16 ? halves_of<__half>(problem, bwd, workspace)
                                       : halves_of<__nv_bfloat16>(problem, bwd, workspace);
}

}  // namespace ssmbench::ssd_hopper_bwd
