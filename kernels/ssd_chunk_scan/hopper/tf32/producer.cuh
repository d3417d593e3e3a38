#pragma once

// The producer warps of the kernel for f32 tensors: warp 0 loads tiles (one thread), warp 1 computes the decays of
// chunks, and the others transpose B.

#include "kernels/common/hopper/tma.cuh"
#include "kernels/ssd_chunk_scan/chunked/scalars.cuh"
#include "kernels/ssd_chunk_scan/hopper/producer.cuh"
#include "kernels/ssd_chunk_scan/hopper/tf32/block.cuh"

namespace ssmbench::ssd_hopper::tf32 {

/// Tiles side by side of 64 rows, the first at `from`.
template <int kTiles>
__device__ __forceinline__ void load_tiles(std::uint32_t to, const CUtensorMap& map,
                                           const hopper::TileOrigin& from, std::uint32_t full) {
  hopper::barrier_arrive_expect(full, kTiles * kTile);
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
    hopper::load_tile(to + i * kTile, map,
                      {{from.at[0] + i * kTileColumns, from.at[1], from.at[2], from.at[3]}}, full);
}

/// By one thread. Slots are filled in the order in which a chunk leaves them.
template <class T>
__device__ void load_chunks(const HopperArgs& args, const SharedMemory<T>& shared) {
  constexpr int kWide = T::kStates / kTileColumns;
  const std::int64_t nheads = args.ssd.in.nheads;
  hopper::RingPositions at;
  for (Cursor<1> cursor(args); !cursor.done(); cursor.advance(), at.advance()) {
    const hopper::TileOrigin projection{{0, cursor.item().group, cursor.chunk() * kSteps, cursor.item().b}};
    shared.b().wait_empty(at);
    load_tiles<kWide>(shared.b_tile(at), args.B, projection, shared.b().full(at));
    if constexpr (T::kOutputs) {
      shared.c().wait_empty(at);
      load_tiles<kWide>(shared.c_tile(), args.C, projection, shared.c().full(at));
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      shared.x(head).wait_empty(at);
      load_tiles<2>(shared.x_tile(head, at), args.x, head_tile(cursor, head, nheads),
                    shared.x(head).full(at));
    }
    if constexpr (T::kOutputs) {
      if (args.ssd.in.z == nullptr) continue;
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        shared.gates(head).wait_empty(at);
        load_tiles<2>(shared.gate_tile(head), args.z, head_tile(cursor, head, nheads),
                      shared.gates(head).full(at));
      }
    }
  }
}

/// By one warp, for the two heads in turn. dt of one turn is loaded while the one before is computed.
template <class T>
__device__ void compute_chunk_scalars(const HopperArgs& args, const SharedMemory<T>& shared, int lane) {
  const SsdInputs& in = args.ssd.in;
  hopper::RingPositions at;
  const BlockPlan<1> plan(args.plan);
#pragma unroll 1
  for (int index = 0; index < plan.segments(); ++index) {
    const Segment segment = plan.segment(index);
    const Item item = plan.item(segment);
    const SsdSequence sequence{item.b * in.seqlen, in.seqlen};
    const auto load = [&](int turn) {  // of an absent head some other's: they are not used
      return chunked::load_steps<float>(in, sequence, max(item.tile(turn % kHeads).head, 0),
                                        std::int64_t{turn / kHeads} * kSteps);
    };
    const int end = kHeads * segment.end;
    chunked::LaneSteps next = load(kHeads * segment.first);
#pragma unroll 1
    for (int turn = kHeads * segment.first; turn < end; ++turn) {
      const chunked::LaneSteps steps = next;
      if (turn + 1 < end) next = load(turn + 1);
      const int head = turn % kHeads;
      const int h = item.tile(head).head;
      const std::int64_t left = h < 0 ? 0 : in.seqlen - std::int64_t{turn / kHeads} * kSteps;
      const float A = in.A[max(h, 0)];
      const float bias = in.dt_bias == nullptr ? 0.0F : in.dt_bias[max(h, 0)];
      shared.scalars(head).wait_empty(at);
      chunked::compute_scalars<Tf32Products>(shared.scalars_of(head, at), steps, in, A, bias, left);
      hopper::barrier_arrive(shared.scalars(head).full(at));
      if (head == kHeads - 1) at.advance();
    }
  }
}

/// B[s][n] of a chunk to [n][s] in blocks of 4 × 4. Rows and columns change places within each 8 (time_place(),
/// state_row()). The eight lanes that go through shared memory together read vectors of different columns, and
/// write such of different steps: neither is in another's bank.
template <class T>
__device__ __forceinline__ void transpose(unsigned char* from, unsigned char* to, int warp, int lane) {
  constexpr int kVectors = T::kStates / 4;                           // of a row of B
  constexpr int kBlocks = kVectors * 16 / (32 * kTransposingWarps);  // of a lane
  const int column = lane % kVectors;                                // 4·column … + 3 of n
  const int half = warp;                                             // steps 8q + half + 2i
#pragma unroll 1
  for (int i = 0; i < kBlocks; ++i) {
    // Of eight steps: two bits differ as those of `column` do, the third is the lane's or the turn's.
    const int high = kVectors < 32 ? lane / kVectors : i / 4;
    const int q = (column / 2 % 4 ^ i % 4) + 4 * high;
    float4 rows[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int s = half + 2 * j;  // of eight
      rows[j] = *reinterpret_cast<const float4*>(from + column / 8 * kTile + (8 * q + s) * kTileRow +
                                                 ((column % 8 ^ s) << 4));
    }
    const int vector = 2 * q + half;  // steps in their order
#pragma unroll
    for (int a = 0; a < 4; ++a) {
      const int row = 2 * a + column % 2;  // of eight
      const auto element = [&](const float4& of) {
        return a == 0 ? of.x : a == 1 ? of.y : a == 2 ? of.z : of.w;
      };
      *reinterpret_cast<float4*>(to + vector / 8 * Layout<T>::kTransposedTile +
                                 (8 * (column / 2) + row) * kTileRow + ((vector % 8 ^ row) << 4)) =
          make_float4(element(rows[0]), element(rows[1]), element(rows[2]), element(rows[3]));
    }
  }
}

template <class T>
__device__ void transpose_chunks(const HopperArgs& args, const SharedMemory<T>& shared, int warp, int lane) {
  hopper::RingPositions at;
  for (Cursor<1> cursor(args); !cursor.done(); cursor.advance(), at.advance()) {
    shared.b().wait_full(at);
    shared.transposed().wait_empty(at);
    transpose<T>(shared.pointer(shared.b_tile(at)), shared.pointer(shared.transposed_tile(at)), warp, lane);
    hopper::fence_async_proxy();
    warp_arrive(shared.transposed().full(at), lane);
    warp_arrive(shared.b().empty(at), lane);
  }
}

template <class T>
__device__ __forceinline__ void produce(const HopperArgs& args, int thread) {
  const SharedMemory<T> shared;
  const int warp = thread / 32;
  const int lane = thread % 32;
  if (warp == 0) {
    if (lane == 0) load_chunks<T>(args, shared);
  } else if (warp == 1) {
    compute_chunk_scalars<T>(args, shared, lane);
  } else {
    transpose_chunks<T>(args, shared, warp - 2, lane);
  }
}

}  // namespace ssmbench::ssd_hopper::tf32
