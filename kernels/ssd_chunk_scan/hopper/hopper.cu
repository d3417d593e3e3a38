// cuda-hopper: registration. The kernel, with the picture of its warps, is in kernel.cuh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>

#include "base/errors.h"
#include "kernels/common/f32_copies.h"
#include "kernels/common/hopper/device.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/handed_ends.cuh"
#include "kernels/ssd_chunk_scan/hopper/halves.h"
#include "kernels/ssd_chunk_scan/hopper/halves_plan.h"
#include "kernels/ssd_chunk_scan/hopper/launch.h"
#include "kernels/ssd_chunk_scan/sequences.h"
#include "ops/ssd_chunk_scan/sequences.h"

namespace ssmbench::ssd_hopper {

extern template Variant variant_for<__half, 1>(int states, bool gated);
extern template Variant variant_for<__half, 2>(int states, bool gated);
extern template Variant variant_for<__nv_bfloat16, 1>(int states, bool gated);
extern template Variant variant_for<__nv_bfloat16, 2>(int states, bool gated);
extern template PackedVariant packed_variant_for<__half, 1>(int states, bool gated, bool stops);
extern template PackedVariant packed_variant_for<__nv_bfloat16, 1>(int states, bool gated, bool stops);
extern template PackedVariant packed_variant_for<__nv_bfloat16, 2>(int states, bool gated, bool stops);

namespace {

/// Multiprocessors of an H200; a GPU with fewer runs the last blocks after the first.
constexpr int kMultiprocessors = 132;

int padded_dstate(const SsdChunkScan& scan) {
  if (scan.dstate <= 64) return 64;
  return scan.dstate <= 128 ? 128 : 256;
}

PlanSizes sizes_of(const SsdChunkScan& scan) {
  return {scan.batch, scan.seqlen, scan.nheads, scan.groups, scan.headdim, padded_dstate(scan)};
}

bool is_f32(const Problem& problem) {
  return problem.dtype() == DType::f32;
}

/// Tiles of an item where blocks are not in clusters.
int most_tiles_of_block(const SsdChunkScan& scan) {
  return padded_dstate(scan) <= 128 ? 2 : 1;
}

/// The same of packed sequences.
int most_packed_tiles(const Problem& problem) {
  if (problem.dtype() == DType::f16) return 1;
  return most_tiles_of_block(SsdChunkScan(problem));
}

/// One packed sequence is a batch of one, but for the states on its way.
bool has_packed(const SsdSequences& sequences) {
  return sequences.packed && (sequences.count > 1 || sequences.stops > 0);
}

Plan plan_of(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  if (has_packed(sequences))
    return packed_plan_for({sequences.count, scan.seqlen, scan.nheads, scan.groups, scan.headdim},
                           kMultiprocessors, most_packed_tiles(problem));
  PlanSizes sizes = sizes_of(scan);
  sizes.f32 = is_f32(problem);
  return plan_for(sizes, kMultiprocessors);
}

std::optional<std::string> unsupported(const Problem& problem) {
  const SsdChunkScan scan(problem);
  const SsdSequences sequences(problem);
  if (is_f32(problem)) {
    if (scan.dstate > 128) return "needs dstate of at most 128 where tensors are f32";
    if (has_packed(sequences)) return "does not support packed sequences where tensors are f32";
    if (scan.headdim % 4 != 0 || scan.dstate % 4 != 0)
      return "needs headdim and dstate that are multiples of 4 where tensors are f32: rows of 16-byte "
             "vectors";
  } else if (scan.headdim % 8 != 0 || scan.dstate % 8 != 0) {
    return "needs headdim and dstate that are multiples of 8: rows of 16-byte vectors";
  }
  constexpr std::int64_t kMost = 2147483647;
  const std::int64_t tiles = ceil_div(scan.headdim, kRows);
  const std::int64_t chunks = ceil_div(scan.seqlen, kSteps) + (sequences.packed ? sequences.count : 0);
  if (scan.seqlen > kMost - 2 * kSteps || scan.nheads > kMost / tiles ||
      chunks > kMost / (scan.nheads * tiles) || scan.batch > kMost / (scan.nheads * tiles * chunks))
    return "needs at most 2147483647 chunks of 64 steps and 64 rows";
  if (hopper::wrong_device()) return "needs a GPU of compute capability 9.0";
  return {};
}

std::size_t workspace_bytes(const Problem& problem) {
  const Plan plan = plan_of(problem);
  const int states = padded_dstate(SsdChunkScan(problem));
  if (is_f32(problem)) return tf32_handed_layout_of(plan, states).bytes;
  const SsdSequences sequences(problem);
  return has_packed(sequences) ? PackedLayout(plan, sequences.count, sequences.stops, states).bytes
                               : handed_layout_of(plan, states).bytes;
}

template <class VariantOf>
auto variant_of(DType dtype, const Plan& plan, const VariantOf& variant_of_types) {
  using Two = std::integral_constant<int, 2>;
  using One = std::integral_constant<int, 1>;
  const bool one_tile = plan.tiles_per_item == 1;
  if (dtype == DType::f16)
    return one_tile ? variant_of_types(__half{}, One{}) : variant_of_types(__half{}, Two{});
  return one_tile ? variant_of_types(__nv_bfloat16{}, One{}) : variant_of_types(__nv_bfloat16{}, Two{});
}

template <class Kernel>
void allow_shared_bytes(Kernel* kernel, int bytes) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  if (auto reason = unsupported(problem)) throw ContractError("cuda-hopper " + *reason);
  const SsdArgs ssd = bind_ssd(problem, tensors);
  for (const void* tensor :
       std::array{ssd.in.x, ssd.in.B, ssd.in.C, ssd.in.z, static_cast<const void*>(ssd.out)})
    if (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0)
      throw ContractError("cuda-hopper needs tensors that are aligned to 16 bytes");
  const Plan plan = plan_of(problem);
  const int states = padded_dstate(SsdChunkScan(problem));
  const bool gated = ssd.in.z != nullptr;
  if (has_packed(SsdSequences(problem))) {
    const SsdSequenceTable sequences = bind_ssd_sequences(problem, tensors);
    const SsdStops stops = bind_ssd_stops(problem, tensors);
    const PackedVariant variant = variant_of(problem.dtype(), plan, [&]<class Io, class Tiles>(Io, Tiles) {
      constexpr bool kScaled = std::is_same_v<Io, __half>;
      return packed_variant_for < Io, kScaled ? 1 : Tiles::value > (states, gated, stops.count > 0);
    });
    allow_shared_bytes(variant.kernel, variant.shared_bytes);
    if (plan.parts > 1) allow_shared_bytes(variant.parts_kernel, variant.parts_shared_bytes);
    return packed_launch(variant, make_packed_args(ssd, sequences, stops, plan, states, workspace),
                         static_cast<int>(sequences.count), stops.states_at, states);
  }
  const Variant variant = is_f32(problem)
                              ? tf32_variant(states)
                              : variant_of(problem.dtype(), plan, [&]<class Io, class Tiles>(Io, Tiles) {
                                  return variant_for<Io, Tiles::value>(states, gated);
                                });
  allow_shared_bytes(variant.kernel, variant.shared_bytes);
  allow_shared_bytes(variant.parts_kernel, variant.parts_shared_bytes);
  const HopperArgs args = is_f32(problem) ? make_tf32_args(ssd, plan, states, workspace)
                                          : make_args(ssd, plan, states, workspace);
  return [=](void* stream) { launch(variant, args, states, static_cast<cudaStream_t>(stream)); };
}

Arithmetic arithmetic(DType io) {
  return {.math = io == DType::f32 ? Math::tf32 : io == DType::f16 ? Math::f16 : Math::bf16};
}

const Registration registration{with_f32_copies(
    {.name = "cuda-hopper",
     .op = "ssd_chunk_scan_fwd",
     .device = DeviceKind::cuda,
     .summary =
         "chunks as products by wgmma, fed by TMA, in warps of different roles; for compute capability 9.0",
     .arithmetic = arithmetic,
     .unsupported = unsupported,
     .workspace_bytes = workspace_bytes,
     .bind = bind},
    "state_dtype")};

/// Of an item of the plan.
struct PlaceOfItem {
  Plan plan;
  __device__ TileOfState operator()(std::int64_t item, int tile) const {
    const Item of = plan.item(static_cast<int>(item));
    const RowTile at = of.tile(tile);
    return {of.b, at.head, at.row};
  }
};

Plan halves_plan(const Problem& problem) {
  const SsdChunkScan scan(problem);
  return halves_plan_for(sizes_of(scan), kMultiprocessors,
                         problem.dtype() == DType::f16 ? 1 : most_tiles_of_block(scan));
}

/// Where states lie: of all parts from zeros, and those that enter parts.
struct HalvesLayout {
  std::size_t own, entering, bytes;

  HalvesLayout(const Plan& plan, int states) {
    WorkspaceLayout layout;
    own = layout.take(static_cast<std::int64_t>(handed_layout_of(with_part_more(plan), states).bytes), 1);
    entering = layout.take(static_cast<std::int64_t>(handed_layout_of(plan, states).bytes), 1);
    bytes = layout.bytes();
  }
};

class HopperHalves : public Halves {
 public:
  HopperHalves(const Problem& problem, const SsdArgs& ssd, void* workspace)
      : plan_(halves_plan(problem)),
        states_(padded_dstate(SsdChunkScan(problem))),
        variant_(variant_of(problem.dtype(), plan_,
                            [&]<class Io, class Tiles>(Io, Tiles) {
                              return variant_for<Io, Tiles::value>(states_, ssd.in.z != nullptr);
                            })),
        of_states_(args_of(ssd, with_part_more(plan_), at(workspace, HalvesLayout(plan_, states_).own))),
        of_outputs_(args_of(ssd, plan_, at(workspace, HalvesLayout(plan_, states_).entering))) {
    allow_shared_bytes(variant_.kernel, variant_.shared_bytes);
    allow_shared_bytes(variant_.parts_kernel, variant_.parts_shared_bytes);
  }

  void states(const float* entering, float* leaving, cudaStream_t stream) override {
    launch_plan(hopper::Begin::after, stream, variant_.parts_kernel, variant_.parts_threads,
                variant_.parts_shared_bytes, of_states_);
    if (leaving != nullptr) join(entering, nullptr, leaving, stream);
  }

  void outputs(const float* entering, float* leaving, cudaStream_t stream) override {
    join(entering, of_outputs_.handed.states, nullptr, stream);
    HopperArgs args = of_outputs_;
    args.ssd.in.initial_states = entering;
    args.ssd.final_states = leaving;
    // What enters was there before the states of parts, which it waits for.
    launch_plan(hopper::Begin::early, stream, variant_.kernel, variant_.threads, variant_.shared_bytes, args);
  }

 private:
  static void* at(void* workspace, std::size_t offset) {
    return static_cast<unsigned char*>(workspace) + offset;
  }
  HopperArgs args_of(const SsdArgs& ssd, const Plan& plan, void* workspace) const {
    HopperArgs args = make_args(ssd, plan, states_, workspace);
    args.ssd.in.initial_states = nullptr;
    args.ssd.final_states = nullptr;
    return args;
  }
  void join(const float* entering, float* before, float* leaving, cudaStream_t stream) const {
    const SsdInputs& in = of_states_.ssd.in;
    const EndsArgs args{.from = of_states_.handed,
                        .stride = of_states_.plan.parts,
                        .of = {plan_.items, plan_.parts, plan_.tiles_per_item, kRows * states_ / 4},
                        .nheads = in.nheads,
                        .headdim = in.headdim,
                        .dstate = in.dstate,
                        .entering = entering};
    launch_ends(args, PlaceOfItem{plan_}, before, leaving, stream);
  }

  Plan plan_;
  int states_;
  Variant variant_;
  HopperArgs of_states_, of_outputs_;
};

}  // namespace

bool has_halves(const Problem& problem) {
  return !is_f32(problem) && !unsupported(problem) && !SsdSequences(problem).packed &&
         SsdChunkScan(problem).seqlen > kSteps * (kLeastParts - 1);
}

std::size_t halves_bytes(const Problem& problem) {
  return HalvesLayout(halves_plan(problem), padded_dstate(SsdChunkScan(problem))).bytes;
}

std::unique_ptr<Halves> halves(const Problem& problem, const SsdArgs& args, void* workspace) {
  return std::make_unique<HopperHalves>(problem, args, workspace);
}

}  // namespace ssmbench::ssd_hopper
