#pragma once

// The producer warps of cuda-hopper that copy tiles: one loads B, C and x, one loads z and stores out. Each is
// one thread that starts copies and waits for slots.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::ssd_hopper {

/// The tile of an item's head at a chunk, of x, z or out. That of an absent head lies outside of the tensor.
__device__ inline hopper::TileOrigin head_tile(const Item& item, int head, int chunk, std::int64_t nheads) {
  const RowTile tile = item.tile(head);
  return {{tile.row, tile.head < 0 ? static_cast<int>(nheads) : tile.head, chunk * kSteps, item.b}};
}

/// By one thread.
template <class T>
class Loader {
 public:
  __device__ Loader(const HopperArgs& args, const SharedMemory<T>& shared) : args_(args), shared_(shared) {}

  __device__ void run() {
    const Plan& plan = args_.plan;
    for (int i = 0; i < plan.pieces(blockIdx.x); ++i) {
      const Piece piece = plan.piece(blockIdx.x, i);
      const Item item = plan.item(piece.item);
      for (int chunk = piece.first; chunk < piece.end; ++chunk) {
        const auto& x_at = at_.template in<T::Depth::kX>();
        const auto& gates_at = at_.template in<T::Depth::kGates>();
        load_head_tiles(shared_.x(0), x_at, args_.x, item, chunk,
                        [&](int head) { return shared_.x_tile(head, x_at); });
        load_projections(item, chunk);
        if constexpr (T::kGated)
          load_head_tiles(shared_.gates(0), gates_at, args_.z, item, chunk,
                          [&](int head) { return shared_.gate_tile(head, gates_at); });
        at_.advance();
      }
    }
  }

 private:
  __device__ void load_projections(const Item& item, int chunk) {
    const auto ring = shared_.projections();
    const auto& at = at_.template in<T::Depth::kProjections>();
    ring.wait_empty(at);
    const std::uint32_t full = ring.full(at);
    hopper::barrier_arrive_expect(full, T::Layout::kProjectionSlot);
#pragma unroll
    for (int half = 0; half < T::Layout::kHalves; ++half) {
      const hopper::TileOrigin from{{64 * half, item.group, chunk * kSteps, item.b}};
      hopper::load_tile(shared_.b_tile(at) + half * kTile, args_.B, from, full);
      hopper::load_tile(shared_.c_tile(at) + half * kTile, args_.C, from, full);
    }
  }

  /// Of x or z. `ring` is that of the first head.
  template <class Ring, class TileOf>
  __device__ void load_head_tiles(Ring ring, const typename Ring::Position& at, const CUtensorMap& map,
                                  const Item& item, int chunk, const TileOf& tile_of) {
#pragma unroll
    for (int head = 0; head < T::kHeads; ++head) {
      ring.wait_empty(at);
      hopper::barrier_arrive_expect(ring.full(at), kTile);
      hopper::load_tile(tile_of(head), map, head_tile(item, head, chunk, args_.ssd.in.nheads), ring.full(at));
      ring.barriers += Ring::kBytes;
    }
  }

  const HopperArgs& args_;
  SharedMemory<T> shared_;
  hopper::RingPositions at_;
};

/// By one thread. A slot is empty once its out is read, which is waited for one tile later.
template <class T>
__device__ void store_outputs(const HopperArgs& args, const SharedMemory<T>& shared) {
  const Plan& plan = args.plan;
  typename SharedMemory<T>::Gates::Position at;
  std::uint32_t empty_before = 0;
  for (int i = 0; i < plan.pieces(blockIdx.x); ++i) {
    const Piece piece = plan.piece(blockIdx.x, i);
    const Item item = plan.item(piece.item);
    for (int chunk = piece.first; chunk < piece.end; ++chunk) {
#pragma unroll
      for (int head = 0; head < T::kHeads; ++head) {
        const auto ring = shared.gates(head);
        ring.wait_done(at);
        hopper::store_tile(args.out, head_tile(item, head, chunk, args.ssd.in.nheads),
                           shared.gate_tile(head, at));
        hopper::wait_stores_read<1>();
        if (empty_before != 0) hopper::barrier_arrive(empty_before);
        empty_before = ring.empty(at);
      }
      at.advance();
    }
  }
  hopper::wait_stores_read<0>();
}

}  // namespace ssmbench::ssd_hopper
