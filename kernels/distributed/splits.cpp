#include "kernels/distributed/splits.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "kernels/distributed/all_to_all.h"
#include "model/distributed.h"

namespace ssmbench {
namespace {

constexpr char kBatchLetter = 'b';
constexpr char kGroupLetter = 'g';

std::int64_t size_of_role(const Problem& problem, AxisRole role) {
  return problem.size(problem.find_axis(role)->name);
}

bool has_axis(const TensorSpec& spec, char letter) {
  return spec.axes.find(letter) != std::string::npos;
}

/// Why sums over the ranks would be wrong, or rounded twice.
std::optional<std::string> cannot_be_added(const Problem& whole, const Box& box) {
  for (const auto& spec : whole.tensors())
    if (spec.role == Role::output && is_whole(spec, box) && spec.dtype != DType::f32 &&
        spec.dtype != DType::c64)
      return fmt::format("adds {} over the ranks, which would round its {} twice", spec.name,
                         name_of(spec.dtype));
  return {};
}

std::optional<std::string> no_channel_split(const Problem& whole, int ranks) {
  const AxisSpec& axis = *whole.find_axis(AxisRole::channel);
  const std::int64_t channels = whole.size(axis.name);
  if (channels % ranks != 0)
    return fmt::format("{} {} is not a multiple of {} ranks", axis.name, channels, ranks);
  const std::int64_t of_rank = channels / ranks;
  const std::int64_t of_group = channels / whole.groups();
  if (of_rank % of_group != 0 && of_group % of_rank != 0)
    return fmt::format("{} groups do not fit {} ranks", whole.groups(), ranks);
  if (whole.groups() > 1 && of_rank < of_group)
    for (const auto& spec : whole.tensors())
      if (spec.role == Role::output && has_axis(spec, kGroupLetter))
        return fmt::format("{} ranks share a group, whose {} is the sum of theirs", of_group / of_rank,
                           spec.name);
  return cannot_be_added(whole, channel_split().box(whole, 0, ranks));
}

/// Groups of the rank's channels.
IndexRange groups_of(const Problem& whole, int rank, int ranks) {
  const std::int64_t channels = size_of_role(whole, AxisRole::channel);
  const std::int64_t of_rank = channels / ranks;
  const std::int64_t of_group = channels / whole.groups();
  return {rank * of_rank / of_group, ((rank + 1) * of_rank - 1) / of_group + 1};
}

Box channel_box(const Problem& whole, int rank, int ranks) {
  const AxisSpec& axis = *whole.find_axis(AxisRole::channel);
  const std::int64_t of_rank = whole.size(axis.name) / ranks;
  return {{axis.letter, {rank * of_rank, (rank + 1) * of_rank}},
          {kGroupLetter, groups_of(whole, rank, ranks)}};
}

Problem channel_part(const Problem& whole, int rank, int ranks) {
  const AxisSpec& axis = *whole.find_axis(AxisRole::channel);
  Axes changes{{axis.name, whole.size(axis.name) / ranks}};
  if (const AxisSpec* groups = whole.find_axis(AxisRole::groups))
    changes[groups->name] = groups_of(whole, rank, ranks).count();
  return whole.with(changes);
}

std::optional<std::string> no_batch_split(const Problem& whole, int ranks) {
  const std::int64_t batch = size_of_role(whole, AxisRole::batch);
  if (batch < ranks) return fmt::format("batch {} is less than {} ranks", batch, ranks);
  return cannot_be_added(whole, batch_split().box(whole, 0, ranks));
}

Box batch_box(const Problem& whole, int rank, int ranks) {
  const std::int64_t batch = size_of_role(whole, AxisRole::batch);
  return {{kBatchLetter, {batch * rank / ranks, batch * (rank + 1) / ranks}}};
}

Problem batch_part(const Problem& whole, int rank, int ranks) {
  return whole.with(
      {{whole.find_axis(AxisRole::batch)->name, batch_box(whole, rank, ranks).at(kBatchLetter).count()}});
}

Launch bind_split(const RankKind& ranks, const Split& split, const Problem& whole, const TensorSet& tensors,
                  void* workspace, Communicator& team) {
  const Problem part = split.part(whole, team.rank(), team.size());
  const Box box = split.box(whole, team.rank(), team.size());
  std::vector<std::span<float>> sums;
  if (team.size() > 1)
    for (const auto& spec : whole.tensors())
      if (spec.role == Role::output && is_whole(spec, box))
        sums.emplace_back(static_cast<float*>(tensors.at(spec.name).data), spec.bytes() / sizeof(float));
  return [&team, sums, compute = ranks.implementation(part)->bind(part, tensors, workspace)](void* stream) {
    compute(stream);
    for (const auto sum : sums) team.all_reduce(sum.data(), sum.size(), stream);
  };
}

void register_split(const RankKind& kind, const char* op, const Split& split) {
  const DistributedRegistration registration(
      {.name = std::string(kind.prefix) + "-" + split.name,
       .op = op,
       .device = kind.device,
       .summary = split.summary,
       .arithmetic = [&kind, op = std::string(op)](DType io) { return kind.arithmetic(op, io); },
       .unsupported = [&kind, &split](const Problem& whole, int ranks) -> std::optional<std::string> {
         if (auto reason = split.unsupported(whole, ranks)) return reason;
         return cannot_compute(kind, split.part(whole, 0, ranks));
       },
       .box = split.box,
       .holder = [](const std::string& /*output*/, int /*ranks*/) { return 0; },  // sums are on all ranks
       .workspace_bytes =
           [&kind, &split](const Problem& whole, int rank, int ranks) {
             const Problem part = split.part(whole, rank, ranks);
             return kind.implementation(part)->workspace_bytes(part);
           },
       .bind = [&kind, &split](
                   const Problem& whole, const TensorSet& tensors, void* workspace,
                   Communicator& team) { return bind_split(kind, split, whole, tensors, workspace, team); }});
}

}  // namespace

bool is_whole(const TensorSpec& spec, const Box& box) {
  return part_of(spec, box).shape == spec.shape;
}

const Split& channel_split() {
  static const Split split{.name = "channels",
                           .summary = "channels or heads shared out: no exchange but of sums",
                           .unsupported = no_channel_split,
                           .box = channel_box,
                           .part = channel_part};
  return split;
}

const Split& batch_split() {
  static const Split split{.name = "batch",
                           .summary = "batches shared out: no exchange but of sums",
                           .unsupported = no_batch_split,
                           .box = batch_box,
                           .part = batch_part};
  return split;
}

SplitRegistration::SplitRegistration(const RankKind& ranks, const char* op) {
  register_split(ranks, op, channel_split());
  register_split(ranks, op, batch_split());
  register_all_to_all(ranks, op);
}

}  // namespace ssmbench
