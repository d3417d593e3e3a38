#include "kernels/distributed/gradient_registration.h"

#include <algorithm>

#include "kernels/common/tensor_data.h"
#include "kernels/distributed/time_split.h"
#include "kernels/distributed/workspace_parts.h"
#include "model/distributed.h"

namespace ssmbench {
namespace {

/// The part as a problem that is given its first state and its last gradient, whoever they come from.
Problem with_states(const ShardedGradients& operation, const Problem& part) {
  return part.with({{operation.state, true}, {operation.dlast_axis, true}});
}

const TensorSpec* find_spec(const std::vector<TensorSpec>& specs, std::string_view name) {
  const auto found = std::ranges::find(specs, name, &TensorSpec::name);
  return found == specs.end() ? nullptr : &*found;
}

bool has_halves(const ShardedGradients& operation, const Problem& inner) {
  return operation.has_halves != nullptr && operation.has_halves(inner);
}

/// Where everything of a rank lies.
struct Room {
  GradientBuffers buffers{};
  std::int32_t* numbers = nullptr;
  float* exchange = nullptr;
  void* shard = nullptr;
  std::int64_t floats = 0;

  Room(const RankKind& kind, const ShardedGradients& operation, const Problem& part, int ranks,
       float* workspace) {
    const ShardSizes sizes = operation.sizes(part);
    const auto specs = part.tensors();
    const TensorSpec* numbers_spec =
        operation.numbers == nullptr ? nullptr : find_spec(specs, operation.numbers);
    const Problem inner = with_states(operation, part);
    WorkspaceParts parts(workspace);
    buffers.state = parts.take(sizes.state_floats);
    buffers.carry = parts.take(sizes.state_floats);
    buffers.dinitial = parts.take(sizes.state_floats);
    numbers = reinterpret_cast<std::int32_t*>(
        parts.take(numbers_spec == nullptr ? 0 : element_count(numbers_spec->shape)));
    exchange = parts.take(StateGradients::floats(sizes, ranks));
    shard = parts.take(floats_for(operation.shard_bytes == nullptr ? 0 : operation.shard_bytes(part)));
    buffers.workspace = parts.take(floats_for(has_halves(operation, inner)
                                                  ? operation.halves_bytes(inner)
                                                  : kind.implementation(inner)->workspace_bytes(inner)));
    floats = parts.floats();
  }

 private:
  static std::int64_t floats_for(std::size_t bytes) {
    return static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
  }
};

class ShardGradients : public LocalGradients {
 public:
  ShardGradients(const RankKind& kind, const ShardedGradients& operation, const Problem& part,
                 const TensorSet& tensors, const Room& room)
      : scan_(operation.scan(part, tensors, room.shard)),
        rebase_(operation.rebase),
        dlast_state_(data_of<const float>(tensors, operation.dlast_state)) {
    const Problem inner = with_states(operation, part);
    TensorSet inner_tensors = tensors;
    const auto specs = inner.tensors();
    const std::string dinitial = std::string("d") + operation.state;
    const auto put = [&](const std::string& name, void* data) {
      inner_tensors.add(name, TensorView(data, *find_spec(specs, name)));
    };
    put(operation.state, room.buffers.state);
    put(operation.dlast_state, room.buffers.carry);
    if (tensors.find(dinitial) == nullptr) put(dinitial, room.buffers.dinitial);
    if (operation.numbers != nullptr && tensors.find(operation.numbers) != nullptr) {
      numbers_ = tensors.at(operation.numbers);
      rebased_ = room.numbers;
      put(operation.numbers, room.numbers);
    }
    if (has_halves(operation, inner))
      halves_ = operation.halves(inner, inner_tensors, room.buffers.workspace);
    else
      halves_ = {.pass = whole_passes(operation.go_back(part, tensors, room.shard)),
                 .compute = kind.implementation(inner)->bind(inner, inner_tensors, room.buffers.workspace)};
    for (const char* name : operation.sums_over_time)
      if (const TensorSpec* spec = find_spec(specs, name);
          spec != nullptr && spec->axes.find(kTimeLetter) == spec->axes.npos)
        sums_.emplace_back(data_of<float>(tensors, name), spec->bytes() / sizeof(float));
  }

  LocalScan& scan() override { return *scan_; }
  const float* dlast_state() const override { return dlast_state_; }
  void pass(const ThroughShard& through, void* stream) override {
    if (rebased_ != nullptr) rebase_(numbers_, rebased_, stream);
    halves_.pass(through, stream);
  }
  void compute(void* stream) override { halves_.compute(stream); }
  std::vector<std::span<float>> sums() const override { return sums_; }

 private:
  using GoBack = std::function<void(const float* leaving, float* entering, void* stream)>;

  std::function<void(const ThroughShard&, void*)> whole_passes(GoBack go_back) {
    return [this, back = std::move(go_back)](const ThroughShard& through, void* stream) {
      if (through.leaving != nullptr)
        scan_->run({0, scan_->sizes().steps}, through.state, through.leaving, false, stream);
      if (through.entering != nullptr) back(through.gradient, through.entering, stream);
    };
  }

  std::unique_ptr<LocalScan> scan_;
  void (*rebase_)(const TensorView&, std::int32_t*, void*);
  const float* dlast_state_;
  TensorView numbers_;
  std::int32_t* rebased_ = nullptr;
  GradientHalves halves_;
  std::vector<std::span<float>> sums_;
};

}  // namespace

GradientRegistration::GradientRegistration(const RankKind& ranks, const ShardedGradients& operation) {
  const auto workspace_bytes = [&ranks, operation](const Problem& whole, int rank, int count) {
    const Problem part = time_part(whole, rank, count);
    return static_cast<std::size_t>(Room(ranks, operation, part, count, nullptr).floats) * sizeof(float);
  };
  const auto bind = [&ranks, operation](const Problem& whole, const TensorSet& tensors, void* workspace,
                                        Communicator& team) -> Launch {
    const Problem part = time_part(whole, team.rank(), team.size());
    check_contract(part, tensors);
    const Room room(ranks, operation, part, team.size(), static_cast<float*>(workspace));
    const auto gradients = std::make_shared<ShardGradients>(ranks, operation, part, tensors, room);
    const auto algorithm = std::make_shared<StateGradients>(*gradients, team, room.buffers, room.exchange);
    return [gradients, algorithm](void* stream) { algorithm->launch(stream); };
  };
  const DistributedRegistration registration(
      {.name = std::string(ranks.prefix) + "-twopass",
       .op = operation.op,
       .device = ranks.device,
       .summary = "states and their gradients of all shards of time at once, then all gradients",
       .arithmetic = [&ranks, op = std::string(operation.op)](DType io) { return ranks.arithmetic(op, io); },
       .unsupported = [&ranks, operation](const Problem& whole, int count) -> std::optional<std::string> {
         if (auto reason = operation.unsupported(whole)) return reason;
         if (auto reason = too_short(whole, count)) return reason;
         return cannot_compute(ranks, with_states(operation, whole));
       },
       .box = time_box,
       .holder = [](const std::string& /*output*/, int /*ranks*/) { return 0; },  // sums are on all ranks
       .workspace_bytes = workspace_bytes,
       .bind = bind});
}

}  // namespace ssmbench
