// Every state of every row is held by exactly one thread, at every kind of size.

#include "kernels/selective_state_update/step/map.h"

#include <vector>

#include "catch.h"

using namespace ssmbench;

namespace {

/// How often the lanes that share a row hold each of its states.
std::vector<int> states_held(const StepPlan& plan, int dstate, int state_bytes) {
  std::vector<int> held(dstate, 0);
  const int width = vector_states(plan.shape, state_bytes);
  for (int lane = 0; lane < plan.lanes(); ++lane)
    for (int i = 0; i < vectors_per_row(plan.shape, state_bytes); ++i) {
      const int n = state_of(lane, plan.lanes(), i, width);
      for (int j = 0; j < width; ++j)
        if (n < dstate) ++held[n + j];
    }
  return held;
}

/// How often groups of lanes hold each of a section's rows, form mamba2.
std::vector<int> head_rows_held(const StepPlan& plan, int headdim) {
  std::vector<int> held(headdim, 0);
  for (std::int64_t warp = 0; warp < plan.tiles * plan.warps; ++warp)
    for (int part = 0; part < plan.rows_per_pass(); ++part)
      for (int r = 0; r < plan.rows; ++r) {
        const std::int64_t row = (warp * plan.rows + r) * plan.rows_per_pass() + part;
        if (row < headdim) ++held[row];
      }
  return held;
}

void check_rows(const StepPlan& plan, int dstate, int state_bytes) {
  REQUIRE(states_held(plan, dstate, state_bytes) == std::vector<int>(dstate, 1));
  REQUIRE(plan.warps >= 1);
  REQUIRE(plan.warps <= kStepWarps);
  REQUIRE(plan.stage_tokens >= 1);
}

}  // namespace

TEST_CASE("cuda-step covers every state once") {
  for (const int state_bytes : {2, 4})
    for (int dstate = 1; dstate <= 256; ++dstate)
      for (const int rows : {1, 3, 32, 64, 100, 256})
        for (const std::int64_t batch : {1, 10'000})  // few rows, many
          for (const std::int64_t tokens : {1, 4, 1000}) {
            CAPTURE(state_bytes, dstate, rows, batch, tokens);
            const StepPlan heads = plan_heads(batch, 2, rows, dstate, state_bytes, tokens);
            check_rows(heads, dstate, state_bytes);
            REQUIRE(head_rows_held(heads, rows) == std::vector<int>(rows, 1));
            REQUIRE(heads.lanes() >= heads.rows);  // each row has a lane that owns it
            REQUIRE(heads.stage_bytes(dstate, false) <= kDefaultSharedBytes);
            const StepPlan channels = plan_channels(batch, 2, rows, dstate, state_bytes, tokens);
            check_rows(channels, dstate, state_bytes);
            REQUIRE(channels.lanes() >= channels.rows);
            REQUIRE(channels.tiles * channels.warps * channels.rows_per_pass() >= rows);
            REQUIRE((channels.tiles - 1) * channels.warps * channels.rows_per_pass() < rows);
            REQUIRE(channels.turns >= 1);
            REQUIRE(channels.batch_tiles * channels.rows * channels.turns >= batch);
            REQUIRE((channels.batch_tiles - 1) * channels.rows * channels.turns < batch);
            REQUIRE(channels.stage_bytes(dstate, true) <= kDefaultSharedBytes);
          }
}

TEST_CASE("cuda-step covers every quantized state once") {
  for (const int state_bytes : {1, 2})
    for (int dstate = 1; dstate <= 256; ++dstate)
      for (const int headdim : {1, 3, 32, 64, 100, 256})
        for (const std::int64_t batch : {1, 10'000})  // few rows, many
          for (const bool one_step_of_heads : {true, false}) {
            CAPTURE(state_bytes, dstate, headdim, batch, one_step_of_heads);
            const StepPlan plan = plan_quantized(batch, 3, headdim, dstate, state_bytes, one_step_of_heads);
            REQUIRE(states_held(plan, dstate, state_bytes) == std::vector<int>(dstate, 1));
            REQUIRE(plan.batch_tiles == batch);
            const bool has_several = plan.rows == kStepFewQuantizedRows || plan.rows == kStepQuantizedRows;
            REQUIRE((plan.rows == 1 || (has_several && one_step_of_heads)));
            REQUIRE(plan.lanes() >= plan.rows);
            REQUIRE(plan.warps <= (plan.rows == 1 ? kStepWarps : kStepHeadWarps));
            const int rows = plan.rows == 1 ? 3 * headdim : headdim;
            REQUIRE(plan.sections * rows == 3 * headdim);
            REQUIRE(head_rows_held(plan, rows) == std::vector<int>(rows, 1));
          }
  // Mamba-2 2.7b: several rows for a thread where there are many, and 8 lanes of 16 states.
  const StepPlan large = plan_quantized(128, 80, 64, 128, 1, true);
  CHECK(large.rows == kStepQuantizedRows);
  CHECK(large.lanes() == 8);
  CHECK(plan_quantized(128, 80, 64, 64, 1, true).rows == kStepFewQuantizedRows);
  CHECK(plan_quantized(128, 80, 64, 128, 2, true).rows == kStepQuantizedRows);
  CHECK(plan_quantized(1, 1, 64, 128, 1, true).rows == 1);
}

TEST_CASE("cuda-step's tensor cores cover every row of a head once") {
  for (const std::int64_t batch : {1, 7, 100, 10'000})
    for (int headdim = 1; headdim <= 256; ++headdim) {
      const int run = product_run(batch, 3, headdim, 128, batch == 7 ? DType::bf16 : DType::i8);
      const int most_warps = headdim % 3 == 0 ? 1 : kStepHeadWarps;
      const StepPlan plan = plan_products(batch, 3, headdim, run, most_warps);
      CAPTURE(headdim, batch, run);
      REQUIRE(head_rows_held(plan, headdim) == std::vector<int>(headdim, 1));
      REQUIRE(plan.rows_per_pass() * plan.rows == kProductRows * run);
      REQUIRE((plan.tiles - 1) * plan.warps * run * kProductRows < headdim);
      REQUIRE(plan.warps <= most_warps);
      REQUIRE(plan.sections == 3);
      REQUIRE(plan.batch_tiles == batch);
    }
  CHECK(product_run(1, 64, 64, 128, DType::f32) == 1);   // few rows: as many warps as there are tiles
  CHECK(product_run(64, 64, 64, 128, DType::f32) == 4);  // many: a head each
  CHECK(product_run(64, 64, 63, 128, DType::f32) == 4);
  CHECK(product_run(37, 24, 64, 128, DType::f32) ==
        2);  // 2.2 tiles for each resident warp: 2 and 2, not 3 and 1
  CHECK(product_run(12, 66, 128, 128, DType::f32) == 4);  // 4.0
  CHECK(product_run(37, 24, 64, 128, DType::bf16) == 2);  // 1.7 tiles: more warps are resident
  CHECK(product_run(12, 66, 64, 128, DType::bf16) == 2);  // 1.5
  CHECK(product_run(100, 64, 256, 128, DType::f32) == 8);
  CHECK(product_run(37, 24, 64, 256, DType::bf16) == 4);  // 3.3 tiles: fewer warps are resident
  // States; B and C; x and z of three or eight tokens; scales.
  CHECK(product_warp_bytes(4, 128, 4, DType::f32, 3) == 2 * 16 * 128 * 4 + 2 * 3 * 64 * 2 + 64 * 4);
  CHECK(product_warp_bytes(1, 128, 1, DType::i8, 8) ==
        2 * 16 * 128 + 2 * 8 * 256 + 2 * 8 * (16 * 2 + 16) + 16 * 4);
  CHECK(product_warps(product_warp_bytes(8, 128, 4, DType::f32, 8)) == 2);
  CHECK(product_warps(product_warp_bytes(8, 256, 4, DType::f32, 8)) == 1);
  CHECK(has_products(64, 128, 2));
  CHECK(has_products(2, 64, 8));
  CHECK_FALSE(has_products(64, 128, 9));
  CHECK_FALSE(has_products(64, 96, 4));
  CHECK_FALSE(has_products(63, 128, 4));
  CHECK(has_products(64, 256, 4, DType::f16));
  CHECK_FALSE(has_products(64, 256, 4, DType::i8));
  CHECK_FALSE(has_products(12, 128, 4, DType::bf16));
}

TEST_CASE("cuda-step's blocks take several heads of states of 8 bits that are rounded stochastically") {
  const auto run = [](std::int64_t batch, std::int64_t heads, std::int64_t of_group, bool is_stochastic) {
    return coded_heads_run(plan_quantized(batch, heads, 64, 128, 1, true), of_group, is_stochastic);
  };
  CHECK(run(256, 128, 16, false) == 1);
  CHECK(run(256, 128, 16, true) == 4);
  CHECK(run(64, 64, 8, true) == 4);  // 1024 blocks are left
  CHECK(run(32, 64, 8, true) == 2);
  CHECK(run(16, 64, 8, true) == 1);
  CHECK(run(256, 96, 6, true) == 3);  // 4 do not divide a group
  CHECK(run(256, 128, 1, true) == 1);
  const auto has = [](std::int64_t batch, std::int64_t headdim, int dstate, DType state, bool is_stochastic) {
    return has_coded_heads(plan_quantized(batch, 16, headdim, dstate, 1, true), headdim, dstate, state,
                           is_stochastic);
  };
  CHECK(has(256, 64, 128, DType::i8, true));
  CHECK(has(256, 36, 64, DType::e4m3, false));
  CHECK_FALSE(has(256, 64, 128, DType::i8, false));
  CHECK_FALSE(has(256, 36, 128, DType::e4m3, false));  // rows of a thread are all there or none
  CHECK_FALSE(has(256, 64, 256, DType::i8, true));
  CHECK_FALSE(has(256, 64, 128, DType::i16, true));
  CHECK_FALSE(has(1, 64, 128, DType::i8, true));                // few
  CHECK(plan_quantized(256, 16, 80, 128, 1, true).warps == 1);  // three of 32 rows, not twice two
  CHECK(plan_quantized(256, 16, 64, 128, 1, true).warps == 2);
  CHECK(plan_quantized(256, 16, 80, 128, 2, true).warps == 2);
}

TEST_CASE("cuda-step's tiles of channels cover every sequence once") {
  for (const std::int64_t batch : {1, 37, 512, 10'000})
    for (const std::int64_t channels : {64, 2048, 8192}) {
      const StepPlan plan = plan_channel_tiles(batch, 2, channels, 1);
      CAPTURE(batch, channels);
      REQUIRE(plan.tiles * kTileChannels == channels);
      REQUIRE(plan.sections == 2);
      REQUIRE(plan.batch_tiles * plan.turns * plan.warps >= batch);
      REQUIRE((plan.batch_tiles - 1) * plan.turns * plan.warps < batch);
    }
  CHECK(plan_channel_tiles(64, 1, 8192, 1).turns == 4);   // 512 blocks, all at once
  CHECK(plan_channel_tiles(512, 1, 2048, 1).turns == 7);  // 608
  CHECK(plan_channel_tiles(512, 1, 2048, 4).turns == 8);  // 512, of which fewer are at once
  CHECK(plan_channel_tiles(512, 1, 8192, 1).turns == kManyChannelTileTurns);
  CHECK(has_channel_tiles(64, 1, 8192, 16));
  CHECK_FALSE(has_channel_tiles(4, 1, 8192, 16));  // as many blocks as multiprocessors, nearly
  CHECK_FALSE(has_channel_tiles(64, 1, 8224, 16));
  CHECK_FALSE(has_channel_tiles(64, 1, 8192, 32));
}

TEST_CASE(
    "cuda-step spreads a single sequence over the GPU and gives threads of large batches several rows") {
  // Mamba-1 130m and Mamba-2 370m, batch 1.
  CHECK(plan_channels(1, 1, 1536, 16, 4, 1).tiles == 48);
  CHECK(plan_heads(1, 32, 64, 128, 2, 1).rows == 1);
  for (const int state_bytes : {2, 4}) {
    const StepPlan large = plan_heads(512, 32, 64, 128, state_bytes, 1);
    CHECK(large.rows == (state_bytes == 2 ? kStepNarrowVectors : kStepWideVectors));
    CHECK(large.warps == kStepHeadWarps);
    CHECK(large.tiles == (state_bytes == 2 ? 2 : 8));
    CHECK(large.lanes() * vector_states(large.shape, state_bytes) == 128);
    const StepPlan tokens = plan_heads(512, 32, 64, 128, state_bytes, 4);
    CHECK(tokens.rows * vector_states(tokens.shape, state_bytes) == kStepTokenStates);
  }
  CHECK(plan_channels(512, 1, 8192, 16, 2, 1).rows == 2);
  CHECK(plan_channels(512, 1, 8192, 16, 4, 1).rows == 4);
  CHECK(plan_channels(512, 1, 8192, 16, 2, 1).turns == kStepNarrowTurns);
  CHECK(plan_channels(512, 1, 8192, 16, 4, 1).turns == kStepWideTurns);
  CHECK(plan_channels(37, 1, 1536, 16, 4, 1).turns == 1);  // few blocks
  CHECK(plan_channels(512, 1, 8192, 16, 4, 2).turns == 1);
}

TEST_CASE("cuda-step takes words where rows are not made of vectors, and else single values") {
  CHECK(plan_heads(1, 1, 1, 12, 2, 1).shape == RowShape::words);
  CHECK(plan_heads(1, 1, 1, 13, 2, 1).shape == RowShape::scalars);
  CHECK(plan_heads(1, 1, 1, 13, 4, 1).shape == RowShape::words);
  CHECK(plan_heads(1, 1, 1, 12, 4, 1).shape == RowShape::one_vector);
  CHECK(plan_heads(1, 1, 1, 256, 2, 1).shape == RowShape::one_vector);
  CHECK(plan_heads(1, 1, 1, 256, 4, 1).shape == RowShape::two_vectors);
  CHECK(plan_quantized(1, 1, 1, 100, 1, true).shape == RowShape::words);
  CHECK(plan_quantized(1, 1, 1, 100, 1, true).lanes() == 8);  // with four words each
  CHECK(plan_quantized(1, 1, 1, 102, 1, true).shape == RowShape::scalars);
  const StepPlan many = plan_heads(128, 64, 64, 100, 2, 1);
  CHECK(many.lanes() == 8);  // with seven words each
  CHECK(many.rows == kStepWordRows);
}

TEST_CASE("cuda-step's threads have as many rows as lanes where few lanes share one") {
  CHECK(plan_heads(512, 64, 64, 16, 2, 1).rows == 2);
  CHECK(plan_heads(512, 64, 64, 32, 2, 1).rows == 4);
  CHECK(plan_heads(512, 64, 64, 64, 2, 1).rows == 8);
}
