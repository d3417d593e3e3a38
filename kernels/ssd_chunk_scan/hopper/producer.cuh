#pragma once

// The producer warps of cuda-hopper that copy tiles: one loads B, C, x and z, one stores out. Each is one
// thread that starts copies and waits for slots.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

/// The tile of an item's head at a chunk, of x, z or out. That of an absent head lies outside of the tensor.
__device__ inline hopper::TileOrigin head_tile(const Item& item, int head, int chunk, std::int64_t nheads) {
  const RowTile tile = item.tile(head);
  return {{tile.row, tile.head < 0 ? static_cast<int>(nheads) : tile.head, chunk * kSteps, item.b}};
}

/// Where a load or store is in a block's work: a chunk of an item.
class Cursor {
 public:
  __device__ explicit Cursor(const Plan& plan) : plan_(plan) { start_segment(); }
  __device__ bool done() const { return index_ == plan_.segments(blockIdx.x); }
  __device__ const Item& item() const { return item_; }
  __device__ int chunk() const { return chunk_; }
  __device__ void advance() {
    if (++chunk_ < end_) return;
    ++index_;
    start_segment();
  }

 private:
  __device__ void start_segment() {
    if (done()) return;
    const Segment segment = plan_.segment(blockIdx.x, index_);
    item_ = plan_.item(segment.item);
    chunk_ = segment.first;
    end_ = segment.end;
  }

  const Plan& plan_;
  int index_ = 0;
  int chunk_ = 0;
  int end_ = 0;
  Item item_{};
};

/// By one thread. The slots that a chunk of the output warpgroups has used come free in the order B and C, x,
/// z: they are filled in that order, each for as many chunks ahead as its ring has slots.
template <class T>
class Loader {
  using Shared = SharedMemory<T>;
  using Depth = typename T::Depth;

 public:
  __device__ Loader(const HopperArgs& args, const Shared& shared) : args_(args), shared_(shared) {}

  __device__ void run() {
    Cursor projections(args_.plan);
    Cursor x(args_.plan);
    Cursor z(args_.plan);
    const auto load_projection = [&] {
      if (projections.done()) return;
      load_projections(projections);
      projections.advance();
    };
    const auto load_x = [&] {
      if (x.done()) return;
      load_head_tiles(shared_.x(0), x_at_, args_.x, x, [&](int head) { return shared_.x_tile(head, x_at_); });
      x.advance();
    };
    const auto load_z = [&] {
      if (!T::kGated || z.done()) return;
      load_head_tiles(shared_.gates(0), z_at_, args_.z, z,
                      [&](int head) { return shared_.gate_tile(head, z_at_); });
      z.advance();
    };
    for (int slot = 0; slot < max(Depth::kX, max(Depth::kGates, Depth::kProjections)); ++slot) {
      if (slot < Depth::kX) load_x();
      if (slot < Depth::kProjections) load_projection();
      if (slot < Depth::kGates) load_z();
    }
    while (!projections.done() || !x.done() || T::kGated && !z.done()) {
      load_projection();
      load_x();
      load_z();
    }
  }

 private:
  __device__ void load_projections(const Cursor& cursor) {
    const auto ring = shared_.projections();
    ring.wait_empty(projections_at_);
    const std::uint32_t full = ring.full(projections_at_);
    hopper::barrier_arrive_expect(full, T::Layout::kProjectionSlot);
#pragma unroll
    for (int half = 0; half < T::Layout::kHalves; ++half) {
      const int group = cursor.item().group;
      const hopper::TileOrigin from{{64 * half, T::kRotated ? group / args_.rotation.heads_per_group : group,
                                     cursor.chunk() * kSteps, cursor.item().b}};
      hopper::load_tile(shared_.b_tile(projections_at_) + half * kTile, args_.B, from, full);
      if constexpr (T::kPass == Pass::outputs)
        hopper::load_tile(shared_.c_tile(projections_at_) + half * kTile, args_.C, from, full);
    }
    if constexpr (T::kRotated)
      hopper::load_tile(shared_.rates(projections_at_), args_.rotation.rates,
                        {{0, cursor.item().group, cursor.chunk() * kSteps, cursor.item().b}}, full);
    projections_at_.advance();
  }

  /// Loads tiles of x or z. `ring` is that of the first head.
  template <class Ring, class TileOf>
  __device__ void load_head_tiles(Ring ring, typename Ring::Position& at, const CUtensorMap& map,
                                  const Cursor& cursor, const TileOf& tile_of) {
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      ring.wait_empty(at);
      hopper::barrier_arrive_expect(ring.full(at), kTile);
      hopper::load_tile(tile_of(head), map,
                        head_tile(cursor.item(), head, cursor.chunk(), args_.ssd.in.nheads), ring.full(at));
      ring.barriers += Ring::kBytes;
    }
    at.advance();
  }

  const HopperArgs& args_;
  Shared shared_;
  typename Shared::Projections::Position projections_at_;
  typename Shared::X::Position x_at_;
  typename Shared::Gates::Position z_at_;
};

/// By one thread. A slot is empty once its out is read.
template <class T>
__device__ void store_outputs(const HopperArgs& args, const SharedMemory<T>& shared) {
  typename SharedMemory<T>::Gates::Position at;
  for (Cursor cursor(args.plan); !cursor.done(); cursor.advance(), at.advance()) {
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      const auto ring = shared.gates(head);
      ring.wait_done(at);
      hopper::store_tile(args.out, head_tile(cursor.item(), head, cursor.chunk(), args.ssd.in.nheads),
                         shared.gate_tile(head, at));
      hopper::wait_stores_read();
      hopper::barrier_arrive(ring.empty(at));
    }
  }
}

}  // namespace ssmbench::ssd_hopper
