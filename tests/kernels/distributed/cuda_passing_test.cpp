// Passing states on GPUs: what is run again is bit for bit the shards one after the other. Ranks are threads
// that share a GPU.

#ifdef SSMBENCH_HAS_CUDA

#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/inputs.h"
#include "kernels/distributed/state_passing.h"
#include "kernels/distributed/time_split.h"
#include "kernels/selective_scan/distributed/cuda_shard.h"
#include "kernels/ssd_chunk_scan/distributed/cuda_shard.h"
#include "model/tensor_map.h"
#include "support/gpu.h"
#include "support/host_tensors.h"
#include "support/mistaken_scan.h"
#include "support/rank_threads.h"
#include "support/run_plan.h"
#include "support/sharded_problems.h"
#include "support/ssd_problem.h"
#include "support/team_run.h"
#include "team/rank_links.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// A tenth of the steps are remembered, about, that the model's inputs are.
void forget_soon(const HostTensor& input) {
  if (input.spec.name != "A") return;
  const TensorView view = real_view(input.view());
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) static_cast<float*>(view.data)[i] *= 300;
}

/// A rank's part of a case in memory of its GPU.
class PartOnGpu {
 public:
  PartOnGpu(const Case& one, bool forgets, Device& device, Communicator& team) : device_(device) {
    const Problem part = time_part(one.problem, team.rank(), team.size());
    const auto inputs =
        generate_inputs(one.problem, one.inputs, time_box(one.problem, team.rank(), team.size()), never_stop);
    for (const auto& input : inputs) {
      if (forgets) forget_soon(input);
      device.copy_in(place(input.spec), input.buffer.data(), input.spec.bytes());
    }
    for (const auto& spec : specs_of(part, Role::output)) place(spec);
    const bool is_scan = one.problem.op().name == "selective_scan_fwd";
    const std::size_t bytes =
        is_scan ? cuda_scan_shards::shard_bytes(part) : cuda_ssd_shards::shard_bytes(part);
    workspace_ = device.allocate(bytes);
    device.fill(workspace_.get(), 0xFF, bytes);
    scan_ = is_scan ? cuda_scan_shards::shard(part, views_, workspace_.get())
                    : cuda_ssd_shards::shard(part, views_, workspace_.get());
  }

  LocalScan& scan() { return *scan_; }
  Device::Buffer floats(std::int64_t count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
    Device::Buffer buffer = device_.allocate(bytes);
    device_.fill(buffer.get(), 0xFF, bytes);
    return buffer;
  }
  std::vector<std::byte> out() const {
    const TensorView& view = views_.at("out");
    return bytes_at(view.data, static_cast<std::size_t>(element_count(view.shape)) * size_of(view.dtype));
  }
  /// Its part of the outputs to where they are of the whole.
  void put_outputs(const Box& box, bool is_last, std::vector<HostTensor>& whole) const {
    for (auto& output : whole) {
      const HostTensor part(part_of(output.spec, box));
      const bool is_cut = part.spec.shape != output.spec.shape;
      if (!is_cut && !is_last) continue;
      device_.copy_out(part.buffer.data(), views_.at(part.spec.name).data, part.spec.bytes());
      const Shape begin = begin_of(output.spec, box);
      scatter(part, output, [&](const Shape& here, Shape& there) {
        for (std::size_t axis = 0; axis < here.size(); ++axis) there[axis] = here[axis] + begin[axis];
      });
    }
  }
  std::vector<std::byte> state_at(const float* state) const {
    return bytes_at(state, static_cast<std::size_t>(scan_->sizes().state_floats) * sizeof(float));
  }

 private:
  void* place(const TensorSpec& spec) {
    buffers_.push_back(device_.allocate(spec.bytes()));
    device_.fill(buffers_.back().get(), 0xFF, spec.bytes());
    views_.add(spec.name, TensorView(buffers_.back().get(), spec));
    return buffers_.back().get();
  }
  std::vector<std::byte> bytes_at(const void* data, std::size_t bytes) const {
    std::vector<std::byte> host(bytes);
    device_.copy_out(host.data(), data, bytes);
    return host;
  }

  Device& device_;
  std::vector<Device::Buffer> buffers_;
  TensorSet views_;
  Device::Buffer workspace_;
  std::unique_ptr<LocalScan> scan_;
};

/// Throws unless outputs and the last state are those of the ranges one after the other.
void rerun_must_be_in_sequence(const Case& one, bool forgets, Communicator& host) {
  const auto device = open_device(DeviceKind::cuda);
  RankLinks links(host, *device, DataPath::host_memory);
  Communicator& team = links.of_device();
  PartOnGpu part(one, forgets, *device, team);
  LocalScan& scan = part.scan();
  const auto stops = host_stops(scan.sizes().steps);
  const auto memory = part.floats(Rerun::floats(scan.sizes(), team.size(), stops.size()));
  Rerun rerun(scan, team, stops, static_cast<float*>(memory.get()));
  rerun.launch(device->stream());
  const auto out = part.out();
  const bool is_last = team.rank() + 1 == team.size();
  std::vector<std::byte> last;
  if (is_last && scan.last_state() != nullptr) last = part.state_at(scan.last_state());

  const float* state = rerun.entering() != nullptr ? rerun.entering() : scan.initial_state();
  std::vector<Device::Buffer> states;
  std::int64_t begin = 0;
  for (const std::int64_t stop : stops) {
    states.push_back(part.floats(scan.sizes().state_floats));
    auto* const leaving = static_cast<float*>(states.back().get());
    scan.run({begin, stop}, state, leaving, true, device->stream());
    state = leaving;
    begin = stop;
  }
  if (out != part.out()) throw std::runtime_error("out is not that of the shards in sequence");
  if (!last.empty() && last != part.state_at(state))
    throw std::runtime_error("the last state is not that of the shards in sequence");
  const std::int64_t again = rerun.steps_again();
  if (team.rank() == 0 && again != 0) throw std::runtime_error("rank 0 runs something again");
  // With seq_idx a state may die at any border.
  if (team.rank() == 0 || one.problem.has("seq_idx")) return;
  if (forgets && again > 256) throw std::runtime_error("runs too much again");
  if (!forgets && again < 448) throw std::runtime_error("stops before states are equal");
}

/// Outputs of three ranks that pass states with a mistake.
std::vector<HostTensor> outputs_with(const Case& one, Mistake mistake) {
  constexpr int kRanks = 3;
  std::vector<HostTensor> whole = blank_outputs(one.problem);
  const std::string failures = run_rank_threads(kRanks, [&](Communicator& host) {
    const auto device = open_device(DeviceKind::cuda);
    RankLinks links(host, *device, DataPath::host_memory);
    Communicator& team = links.of_device();
    PartOnGpu part(one, false, *device, team);
    LocalScan& scan = part.scan();
    const auto elsewhere = part.floats(scan.sizes().state_floats);
    MistakenScan mistaken(scan, mistake, static_cast<float*>(elsewhere.get()),
                          [&](float* at, std::int64_t count) {
                            device->fill(at, 0, static_cast<std::size_t>(count) * sizeof(float));
                          });
    const auto stops = host_stops(scan.sizes().steps);
    const auto memory = part.floats(Rerun::floats(scan.sizes(), team.size(), stops.size()));
    Rerun(mistaken, team, stops, static_cast<float*>(memory.get())).launch(device->stream());
    for (int rank = 0; rank < kRanks; ++rank) {  // one after the other: they write to the same tensors
      if (rank == team.rank())
        part.put_outputs(time_box(one.problem, rank, kRanks), rank + 1 == kRanks, whole);
      team.barrier();
    }
  });
  if (!failures.empty()) throw std::runtime_error(failures);
  return whole;
}

}  // namespace

TEST_CASE("mistakes in passing states between ranks on GPUs are found by verification", "[gpu]") {
  if (!gpu_or_skip()) return;
  const Problem scan =
      scan_problem({{"seqlen", size(400)}, {"dim", size(4)}, {"dstate", size(3)}, {"delta_softplus", true}});
  const Problem ssd = ssd_problem({{"seqlen", size(400)},
                                   {"nheads", size(3)},
                                   {"headdim", size(4)},
                                   {"dstate", size(3)},
                                   {"dt_softplus", true},
                                   {"final_states", true}});
  for (const Problem& problem : {scan, ssd}) {
    const WholeCase whole(make_case(problem, "slow_decay"));
    INFO(problem.op().name);
    CHECK(whole.faults(outputs_with(whole.the_case(), Mistake::none)) == "");
    for (const Mistake mistake : {Mistake::own_shard_twice, Mistake::wrong_neighbour, Mistake::decay_left_out,
                                  Mistake::stopped_early, Mistake::last_state_of_first_pass}) {
      INFO("mistake " << static_cast<int>(mistake));
      CHECK(whole.faults(outputs_with(whole.the_case(), mistake)) != "");
    }
  }
}

TEST_CASE("ranks on GPUs run again what the shards one after the other give, bit for bit", "[gpu]") {
  if (!gpu_or_skip()) return;
  for (const bool forgets : {false, true})
    for (std::size_t turn = 0; turn < 6; ++turn) {
      const Problem scan = scan_at(1000, turn, selective_scan_fwd());
      const Problem ssd = ssd_at(1000, turn, ssd_chunk_scan_fwd());
      const Problem wide = scan_problem({{"seqlen", size(1024)},
                                         {"dim", size(64)},
                                         {"dstate", size(16)},
                                         {"dtype", "bf16"},
                                         {"layout", turn % 2 == 0 ? "bdl" : "bld"},
                                         {"delta_softplus", true}});
      for (const Problem& problem : {scan, ssd, wide}) {
        const Case one = make_case(problem, forgets ? "mamba" : "slow_decay");
        INFO(one.id() << (forgets ? ", forgets" : ""));
        CHECK(run_rank_threads(
                  2, [&](Communicator& host) { rerun_must_be_in_sequence(one, forgets, host); }) == "");
      }
    }
}

#endif
