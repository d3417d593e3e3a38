#pragma once

// The producer warps of cuda-hopper that copy tiles: one loads B, C, x and z, one stores out. Each is one
// thread that starts copies and waits for slots.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

/// Where a load or store is in a block's work: a chunk of an item.
template <int kCluster>
class Cursor {
 public:
  __device__ explicit Cursor(const HopperArgs& args) : plan_(args.plan) { start_segment(); }
  __device__ bool done() const { return index_ == plan_.segments(); }
  __device__ const Item& item() const { return item_; }
  __device__ int chunk() const { return chunk_; }
  /// Rows of the chunk's tiles that are copied. What lies past the tensor's end is not.
  __device__ static constexpr int rows() { return kSteps; }
  __device__ void advance() {
    if (++chunk_ < end_) return;
    ++index_;
    start_segment();
  }

 private:
  __device__ void start_segment() {
    if (done()) return;
    const Segment segment = plan_.segment(index_);
    item_ = plan_.item(segment);
    chunk_ = segment.first;
    end_ = segment.end;
  }

  BlockPlan<kCluster> plan_;
  int index_ = 0;
  int chunk_ = 0;
  int end_ = 0;
  Item item_{};
};

/// The same in packed sequences.
class PackedCursor {
 public:
  __device__ explicit PackedCursor(const PackedArgs& args) : segments_(args) { start_segment(); }
  __device__ bool done() const { return segments_.done(); }
  __device__ const Item& item() const { return item_; }
  /// Where the chunk starts.
  __device__ int step() const { return begin_ + chunk_ * kSteps; }
  /// Steps of the chunk: rows of its tiles that are the sequence's.
  __device__ int rows() const { return min(steps_ - chunk_ * kSteps, kSteps); }
  __device__ void advance() {
    if (++chunk_ < segments_.segment().end) return;
    segments_.advance();
    start_segment();
  }

 private:
  __device__ void start_segment() {
    if (done()) return;
    const Segment segment = segments_.segment();
    item_ = segments_.item(segment);
    begin_ = segments_.begin();
    steps_ = segments_.steps();
    chunk_ = segment.first;
  }

  Segments<true, 1> segments_;
  int begin_ = 0;  ///< of the sequence
  int steps_ = 0;
  int chunk_ = 0;
  Item item_{};
};

template <class T>
using CursorOf = std::conditional_t<T::kPacked, PackedCursor, Cursor<T::kCluster>>;

/// The tile of an item's head, of x, z or out. That of an absent head lies outside of the tensor.
template <int kCluster>
__device__ inline hopper::TileOrigin head_tile(const Cursor<kCluster>& cursor, int head,
                                               std::int64_t nheads) {
  const RowTile tile = cursor.item().tile(head);
  return {{tile.row, tile.head < 0 ? static_cast<int>(nheads) : tile.head, cursor.chunk() * kSteps,
           cursor.item().b}};
}
__device__ inline hopper::TileOrigin head_tile(const PackedCursor& cursor, int head, std::int64_t nheads) {
  const RowTile tile = cursor.item().tile(head);
  return {{tile.row, tile.head < 0 ? static_cast<int>(nheads) : tile.head, cursor.step(), 0}};
}

/// A tensor's map of tiles of so many rows.
__device__ inline const CUtensorMap& map_of(const CUtensorMap& whole, const RowMaps& maps, int log2_rows) {
  return log2_rows == kRowMaps ? whole : maps.of_rows[log2_rows];
}

/// copy(log₂ height, first row) for copies that make up rows `first` … `first` + `rows` − 1 of a tile: one or two
/// whose heights are the largest power of two in it. Both may copy the same rows.
template <class Copy>
__device__ __forceinline__ void for_rows(int first, int rows, const Copy& copy) {
  if (rows == 0) return;
  const int log2_rows = 31 - __clz(rows);
  copy(log2_rows, first);
  if (rows != 1 << log2_rows) copy(log2_rows, first + rows - (1 << log2_rows));
}
/// Bytes of these copies, and of those of the tile's other rows.
__device__ __forceinline__ int bytes_of_rows(int rows) {
  int all = 0;
  const auto add = [&](int log2_rows, int) { all += kTileRow << log2_rows; };
  for_rows(0, rows, add);
  for_rows(rows, kSteps - rows, add);
  return all;
}
/// By one thread. The slots that a chunk of the output warpgroups has used come free in the order B and C, x,
/// z: they are filled in that order, each for as many chunks ahead as its ring has slots.
template <class T>
class Loader {
  using Shared = SharedMemory<T>;
  using Depth = typename T::Depth;

 public:
  __device__ Loader(const typename T::Args& args, const Shared& shared) : args_(args), shared_(shared) {}

  __device__ void run() {
    if constexpr (T::kRotated && T::kPacked)
      run_in_step();
    else
      run_apart();
  }

 private:
  /// All of a chunk, then all of the next: no registers are left for three cursors.
  __device__ void run_in_step() {
    for (CursorOf<T> cursor(args_); !cursor.done(); cursor.advance()) {
      load_projections(cursor);
      load_x(cursor);
      load_z(cursor);
    }
  }

  __device__ void run_apart() {
    CursorOf<T> projections(args_);
    CursorOf<T> x(args_);
    CursorOf<T> z(args_);
    const auto load_projection = [&] {
      if (projections.done()) return;
      load_projections(projections);
      projections.advance();
    };
    const auto load_next_x = [&] {
      if (x.done()) return;
      load_x(x);
      x.advance();
    };
    const auto load_next_z = [&] {
      if (!T::kGated || z.done()) return;
      load_z(z);
      z.advance();
    };
    for (int slot = 0; slot < max(Depth::kX, max(Depth::kGates, Depth::kProjections)); ++slot) {
      if (slot < Depth::kX) load_next_x();
      if (slot < Depth::kProjections) load_projection();
      if (slot < Depth::kGates) load_next_z();
    }
    while (!projections.done() || !x.done() || T::kGated && !z.done()) {
      load_projection();
      load_next_x();
      load_next_z();
    }
  }

  __device__ void load_x(const CursorOf<T>& cursor) {
    if (!load_last_x(cursor))
      load_head_tiles(shared_.x(0), x_at_, args_.x, cursor,
                      [&](int head) { return shared_.x_tile(head, x_at_); });
  }
  __device__ void load_z(const CursorOf<T>& cursor) {
    if constexpr (T::kGated)
      load_head_tiles(shared_.gates(0), z_at_, args_.z, cursor,
                      [&](int head) { return shared_.gate_tile(head, z_at_); });
  }
  __device__ void load_projections(const Cursor<T::kCluster>& cursor) {
    const auto ring = shared_.projections();
    ring.wait_empty(projections_at_);
    const std::uint32_t full = ring.full(projections_at_);
    hopper::barrier_arrive_expect(full, T::Layout::kProjectionSlot);
#pragma unroll
    for (int half = 0; half < T::Layout::kHalves; ++half) {
      const int group = cursor.item().group;
      const hopper::TileOrigin from{{64 * half, T::kRotated ? group / args_.rotation.heads_per_group : group,
                                     cursor.chunk() * kSteps, cursor.item().b}};
      const std::uint32_t b = shared_.b_tile(projections_at_) + half * kTile;
      const std::uint32_t c = shared_.c_tile(projections_at_) + half * kTile;
      if constexpr (T::kCluster == 1) {
        hopper::load_tile(b, args_.B, from, full);
        if constexpr (T::kPass == Pass::outputs) hopper::load_tile(c, args_.C, from, full);
      } else if constexpr (T::kPass == Pass::outputs) {
        const bool second = blockIdx.x % 2 == 1;
        hopper::load_tile_of_pair(second ? c : b, second ? args_.C : args_.B, from, full);
      } else if (blockIdx.x % 2 == half % 2) {
        hopper::load_tile_of_pair(b, args_.B, from, full);
      }
    }
    if constexpr (T::kRotated)
      hopper::load_tile(shared_.phases(projections_at_), args_.rotation.phases,
                        {{0, cursor.item().group, cursor.chunk() * kSteps, cursor.item().b}}, full);
    projections_at_.advance();
  }

  /// Of packed sequences. In their last chunks rows past the end are zeros, as past the end of a tensor: 0 · NaN
  /// is none. But rows of C make rows of out alone, if M has no scale of 16 of them.
  __device__ void load_projections(const PackedCursor& cursor) {
    const auto ring = shared_.projections();
    ring.wait_empty(projections_at_);
    const std::uint32_t full = ring.full(projections_at_);
    const std::uint32_t b = shared_.b_tile(projections_at_);
    const std::uint32_t c = shared_.c_tile(projections_at_);
    const int head = cursor.item().group;
    const int group = T::kRotated ? head / args_.rotation.heads_per_group : head;
    const hopper::TileOrigin from{{0, group, cursor.step(), 0}};
    const int rows = cursor.rows();
    constexpr int kHalves = T::Layout::kHalves;
    constexpr bool kOutputs = T::kPass == Pass::outputs;  // they alone need C
    if (rows == kSteps) {
      hopper::barrier_arrive_expect(full, T::Layout::kProjectionSlot);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        hopper::load_tile(b + half * kTile, args_.B, half_of(from, half), full);
        if constexpr (kOutputs) hopper::load_tile(c + half * kTile, args_.C, half_of(from, half), full);
      }
    } else {
      const int bytes = bytes_of_rows(rows);
      constexpr int kOthers = T::kRotated ? kPhases : 0;
      hopper::barrier_arrive_expect(full, kOthers + kHalves * (bytes + (!kOutputs    ? 0
                                                                        : T::kScaled ? bytes
                                                                                     : kTile)));
#pragma unroll 1
      for (int half = 0; half < kHalves; ++half) {
        load_rows(b + half * kTile, args_.B, args_.B_rows, half_of(from, half), rows, full);
        if constexpr (!kOutputs) continue;
        if constexpr (T::kScaled)
          load_rows(c + half * kTile, args_.C, args_.C_rows, half_of(from, half), rows, full);
        else
          hopper::load_tile(c + half * kTile, args_.C, half_of(from, half), full);
      }
    }
    if constexpr (T::kRotated)  // those past the end turn zeros
      hopper::load_tile(shared_.phases(projections_at_), args_.rotation.phases, {{0, head, cursor.step(), 0}},
                        full);
    projections_at_.advance();
  }
  __device__ static hopper::TileOrigin half_of(const hopper::TileOrigin& from, int half) {
    return {{64 * half, from.at[1], from.at[2], from.at[3]}};
  }
  /// Of x, if it is the last chunk of a packed sequence.
  __device__ static constexpr bool load_last_x(const Cursor<T::kCluster>&) {
    return false;
  }
  __device__ bool load_last_x(const PackedCursor& cursor) {
    const int rows = cursor.rows();
    if (rows == kSteps) return false;
#pragma unroll 1
    for (int head = 0; head < T::kHeads; ++head) {
      const auto ring = shared_.x(head);
      ring.wait_empty(x_at_);
      hopper::barrier_arrive_expect(ring.full(x_at_), bytes_of_rows(rows));
      load_rows(shared_.x_tile(head, x_at_), args_.x, args_.x_rows,
                head_tile(cursor, head, args_.ssd.in.nheads), rows, ring.full(x_at_));
    }
    x_at_.advance();
    return true;
  }
  /// Loads the first rows of a tile, and zeros in place of the others.
  __device__ void load_rows(std::uint32_t tile, const CUtensorMap& whole, const RowMaps& maps,
                            const hopper::TileOrigin& from, int rows, std::uint32_t barrier) const {
    const auto load = [&](int log2_rows, int row, int step) {
      hopper::load_tile(tile + row * kTileRow, map_of(whole, maps, log2_rows),
                        hopper::TileOrigin{{from.at[0], from.at[1], step, from.at[3]}}, barrier);
    };
    for_rows(0, rows, [&](int log2_rows, int row) { load(log2_rows, row, from.at[2] + row); });
    for_rows(rows, kSteps - rows,
             [&](int log2_rows, int row) { load(log2_rows, row, static_cast<int>(args_.ssd.in.seqlen)); });
  }

  /// Loads tiles of x or z. `ring` is that of the first head.
  template <class Ring, class TileOf>
  __device__ void load_head_tiles(Ring ring, typename Ring::Position& at, const CUtensorMap& map,
                                  const CursorOf<T>& cursor, const TileOf& tile_of) {
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      ring.wait_empty(at);
      hopper::barrier_arrive_expect(ring.full(at), kTile);
      hopper::load_tile(tile_of(head), map, head_tile(cursor, head, args_.ssd.in.nheads), ring.full(at));
      ring.barriers += Ring::kBytes;
    }
    at.advance();
  }

  const typename T::Args& args_;
  Shared shared_;
  typename Shared::Projections::Position projections_at_;
  typename Shared::X::Position x_at_;
  typename Shared::Gates::Position z_at_;
};

/// The first rows of a tile of out, in the last chunk of a packed sequence.
__device__ inline void store_rows(const PackedArgs& args, const hopper::TileOrigin& to, int rows,
                                  std::uint32_t tile) {
  for_rows(0, rows, [&](int log2_rows, int row) {
    hopper::store_tile(map_of(args.out, args.out_rows, log2_rows),
                       {{to.at[0], to.at[1], to.at[2] + row, to.at[3]}}, tile + row * kTileRow);
  });
}
__device__ inline void store_rows(const HopperArgs&, const hopper::TileOrigin&, int, std::uint32_t) {}

/// By one thread. A slot is empty once its out is read.
template <class T>
__device__ void store_outputs(const typename T::Args& args, const SharedMemory<T>& shared) {
  typename SharedMemory<T>::Gates::Position at;
  for (CursorOf<T> cursor(args); !cursor.done(); cursor.advance(), at.advance()) {
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      const auto ring = shared.gates(head);
      ring.wait_done(at);
      const hopper::TileOrigin to = head_tile(cursor, head, args.ssd.in.nheads);
      if (cursor.rows() == kSteps)
        hopper::store_tile(args.out, to, shared.gate_tile(head, at));
      else
        store_rows(args, to, cursor.rows(), shared.gate_tile(head, at));
      hopper::wait_stores_read();
      hopper::barrier_arrive(ring.empty(at));
    }
  }
}

}  // namespace ssmbench::ssd_hopper
