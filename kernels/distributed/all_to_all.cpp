#include "kernels/distributed/all_to_all.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/distributed/splits.h"
#include "kernels/distributed/time_split.h"
#include "kernels/distributed/workspace_parts.h"
#include "model/distributed.h"

namespace ssmbench {
namespace {

std::byte* byte_at(const TensorView& view, std::int64_t offset) {
  return static_cast<std::byte*>(view.data) + offset * static_cast<std::int64_t>(size_of(view.dtype));
}

/// Enqueues a copy of what lies in `region` from one part of a tensor to another. The views hold the parts in
/// from_box and to_box, and so the region.
void copy_region(const RankKind& ranks, const TensorSpec& whole, const Box& region, const TensorView& from,
                 const Box& from_box, const TensorView& to, const Box& to_box, void* stream) {
  const Shape shape = part_of(whole, region).shape;
  const Shape begin = begin_of(whole, region);
  const Shape from_begin = begin_of(whole, from_box);
  const Shape to_begin = begin_of(whole, to_box);
  RegionCopy copy{.axes = static_cast<int>(shape.size()), .element_bytes = size_of(from.dtype)};
  std::int64_t source = 0;
  std::int64_t target = 0;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    copy.shape[axis] = shape[axis];
    copy.from_strides[axis] = from.strides[axis];
    copy.to_strides[axis] = to.strides[axis];
    source += (begin[axis] - from_begin[axis]) * from.strides[axis];
    target += (begin[axis] - to_begin[axis]) * to.strides[axis];
  }
  copy.from = byte_at(from, source);
  copy.to = byte_at(to, target);
  ranks.copy(copy, stream);
}

/// The parts of a problem by time and by channels, for every rank.
class Shards {
 public:
  Shards(const Problem& whole, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      time.push_back(time_box(whole, rank, ranks));
      channels.push_back(channel_split().box(whole, rank, ranks));
    }
  }

  int ranks() const { return static_cast<int>(time.size()); }
  /// What the steps of one rank and the channels of another have in common.
  Box common(int of_time, int of_channels) const {
    Box box = channels[static_cast<std::size_t>(of_channels)];
    box.insert(time[static_cast<std::size_t>(of_time)].begin(),
               time[static_cast<std::size_t>(of_time)].end());
    return box;
  }
  /// Room for what any rank sends any other of a tensor.
  std::size_t message_bytes(const TensorSpec& whole) const {
    std::size_t most = 0;
    for (int t = 0; t < ranks(); ++t)
      for (int c = 0; c < ranks(); ++c) most = std::max(most, part_of(whole, common(t, c)).bytes());
    return most;
  }

  std::vector<Box> time, channels;
};

std::int64_t floats_for(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
}

/// Where a rank keeps its channels' tensors, and messages.
struct ExchangeRoom {
  std::vector<float*> tensors;  ///< in the problem's order
  std::byte *sent, *received;
  float* inner;
  std::int64_t floats;

  ExchangeRoom(const RankKind& ranks, const Problem& whole, const Problem& part, const Shards& shards,
               float* workspace) {
    WorkspaceParts parts(workspace);
    std::size_t message = 0;
    for (const auto& spec : whole.tensors()) message = std::max(message, shards.message_bytes(spec));
    for (const auto& spec : part.tensors()) tensors.push_back(parts.take(floats_for(spec.bytes())));
    const std::int64_t messages = floats_for(message * static_cast<std::size_t>(shards.ranks()));
    sent = reinterpret_cast<std::byte*>(parts.take(messages));
    received = reinterpret_cast<std::byte*>(parts.take(messages));
    inner = parts.take(floats_for(ranks.implementation(part)->workspace_bytes(part)));
    floats = parts.floats();
  }
};

class AllToAll {
 public:
  AllToAll(const RankKind& ranks, const Problem& whole, const TensorSet& tensors, float* workspace,
           Communicator& team)
      : ranks_(ranks),
        team_(team),
        shards_(whole, team.size()),
        own_time_(shards_.time[static_cast<std::size_t>(team.rank())]),
        own_channels_(shards_.channels[static_cast<std::size_t>(team.rank())]) {
    check_contract(time_part(whole, team.rank(), team.size()), tensors);
    const Problem part = channel_split().part(whole, team.rank(), team.size());
    const ExchangeRoom room(ranks, whole, part, shards_, workspace);
    sent_ = room.sent;
    received_ = room.received;
    const auto wholes = whole.tensors();
    const auto specs = part.tensors();
    TensorSet inner;
    for (std::size_t i = 0; i < wholes.size(); ++i) {
      const TensorView own(room.tensors[i], specs[i]);
      inner.add(specs[i].name, own);
      exchanges_.push_back({wholes[i], tensors.at(specs[i].name), own});
    }
    compute_ = ranks.implementation(part)->bind(part, inner, room.inner);
  }

  void launch(void* stream) {
    for (const auto& tensor : exchanges_)
      if (tensor.whole.role == Role::input) to_channels(tensor, stream);
    compute_(stream);
    for (const auto& tensor : exchanges_)
      if (tensor.whole.role == Role::output) to_time(tensor, stream);
  }

 private:
  /// A tensor, and the rank's parts of it by time and by channels.
  struct Exchange {
    TensorSpec whole;
    TensorView time, channels;
  };

  std::byte* message(std::byte* messages, int rank, const TensorSpec& whole) const {
    return messages + static_cast<std::size_t>(rank) * shards_.message_bytes(whole);
  }

  void copy(const TensorSpec& whole, const Box& region, const TensorView& from, const Box& from_box,
            const TensorView& to, const Box& to_box, void* stream) const {
    copy_region(ranks_, whole, region, from, from_box, to, to_box, stream);
  }

  void to_channels(const Exchange& tensor, void* stream) {
    const TensorSpec& whole = tensor.whole;
    if (is_whole(whole, own_time_) && shards_.ranks() > 1)  // no time: all ranks have it
      return copy(whole, own_channels_, tensor.time, own_time_, tensor.channels, own_channels_, stream);
    for (int rank = 0; rank < shards_.ranks(); ++rank) {
      const Box box = shards_.common(team_.rank(), rank);
      copy(whole, box, tensor.time, own_time_, {message(sent_, rank, whole), part_of(whole, box)}, box,
           stream);
    }
    team_.all_to_all(sent_, received_, shards_.message_bytes(whole), stream);
    for (int rank = 0; rank < shards_.ranks(); ++rank) {
      const Box box = shards_.common(rank, team_.rank());
      copy(whole, box, {message(received_, rank, whole), part_of(whole, box)}, box, tensor.channels,
           own_channels_, stream);
    }
  }

  void to_time(const Exchange& tensor, void* stream) {
    const TensorSpec& whole = tensor.whole;
    if (is_whole(whole, own_channels_) && shards_.ranks() > 1) {  // each rank has its channels' terms
      team_.all_reduce(static_cast<float*>(tensor.channels.data), whole.bytes() / sizeof(float), stream);
      return copy(whole, own_time_, tensor.channels, own_channels_, tensor.time, own_time_, stream);
    }
    for (int rank = 0; rank < shards_.ranks(); ++rank) {
      const Box box = shards_.common(rank, team_.rank());
      copy(whole, box, tensor.channels, own_channels_, {message(sent_, rank, whole), part_of(whole, box)},
           box, stream);
    }
    team_.all_to_all(sent_, received_, shards_.message_bytes(whole), stream);
    for (int rank = 0; rank < shards_.ranks(); ++rank) {
      const Box box = shards_.common(team_.rank(), rank);
      copy(whole, box, {message(received_, rank, whole), part_of(whole, box)}, box, tensor.time, own_time_,
           stream);
    }
  }

  const RankKind& ranks_;
  Communicator& team_;
  Shards shards_;
  Box own_time_, own_channels_;
  std::byte *sent_, *received_;
  std::vector<Exchange> exchanges_;
  Launch compute_;
};

}  // namespace

void register_all_to_all(const RankKind& kind, const char* op) {
  const DistributedRegistration registration(
      {.name = std::string(kind.prefix) + "-alltoall",
       .op = op,
       .device = kind.device,
       .summary = "shards of time changed for shards of channels and back: all data is exchanged",
       .arithmetic = [&kind, op = std::string(op)](DType io) { return kind.arithmetic(op, io); },
       .unsupported = [&kind](const Problem& whole, int ranks) -> std::optional<std::string> {
         if (auto reason = channel_split().unsupported(whole, ranks)) return reason;
         if (auto reason = too_short(whole, ranks)) return reason;
         return cannot_compute(kind, channel_split().part(whole, 0, ranks));
       },
       .box = time_box,
       .holder = [](const std::string& /*output*/, int /*ranks*/) { return 0; },  // all ranks have them
       .workspace_bytes =
           [&kind](const Problem& whole, int rank, int ranks) {
             const Problem part = channel_split().part(whole, rank, ranks);
             return static_cast<std::size_t>(
                        ExchangeRoom(kind, whole, part, Shards(whole, ranks), nullptr).floats) *
                    sizeof(float);
           },
       .bind = [&kind](const Problem& whole, const TensorSet& tensors, void* workspace,
                       Communicator& team) -> Launch {
         const auto bound =
             std::make_shared<AllToAll>(kind, whole, tensors, static_cast<float*>(workspace), team);
         return [bound](void* stream) { bound->launch(stream); };
       }});
}

}  // namespace ssmbench
