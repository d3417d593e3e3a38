// Where the gradients of Mamba-3 by chunks keep what they work on: angles, phases, chunks of packed sequences, blocks
// and spans.

#include <algorithm>
#include <set>
#include <vector>

#include "catch.h"
#include "kernels/mamba3/hopper_bwd/phases.h"
#include "kernels/mamba3/shuffled_team.h"
#include "kernels/mamba3/tensor_bwd/plan.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;
using namespace ssmbench::mamba3_bwd;

namespace {

template <int kRanks>
void check_angle_tile() {
  INFO("rank " << kRanks);
  std::set<int> offsets;
  for (int t = 0; t < kSteps / kRanks; ++t)
    for (int pair = 0; pair < kTilePairs; ++pair) {
      const int offset = angle_offset<kRanks>(t, pair);
      CHECK(offsets.insert(offset).second);
      CHECK((offset >= 0 && offset < kAngleTile / kRanks));
      const AngleAt first = angle_at<kRanks>(offset / kAngleVector);
      const int of_vector = offset % kAngleVector;
      CHECK(first.t + of_vector % 2 * (kApartSteps / kRanks) == t);
      CHECK(first.pair + of_vector / 2 * kApartPairs == pair);
      // As a lane of a warp has the accumulators of a product; `row`: of the step's first rank.
      const int row = t * kRanks;
      const int thread = offset / kAngleVector % (2 * kSteps / kRanks);
      CHECK(thread / (32 / kRanks) == row / 16);
      CHECK(thread % (32 / kRanks) / 4 == row % 8 / kRanks);
      CHECK(thread % 4 == pair % 4);
    }
}

}  // namespace

TEST_CASE("an angle tile has each pair of each step once, a thread's in vectors", "[mamba3]") {
  check_angle_tile<1>();
  check_angle_tile<2>();
  check_angle_tile<4>();
  check_angle_tile<8>();
}

TEST_CASE("a phase tile has the pairs of two angle vectors of a thread in one", "[mamba3]") {
  std::set<int> elements;
  for (int vector = 0; vector < kPhaseVectors; ++vector)
    for (int element = 0; element < kPhaseElements; ++element) {
      const AngleAt at = phase_at(vector, element);
      const int offset = angle_offset(at.t, at.pair);
      CHECK(elements.insert(offset).second);
      CHECK(offset / kAngleVector % (2 * kSteps) == vector % (2 * kSteps));
      CHECK(offset % kAngleVector == element % kAngleVector);
      CHECK(offset / kAngleVector / (2 * kSteps) == vector / (2 * kSteps) * 2 + element / kAngleVector);
    }
  CHECK(elements.size() == kAngleTile);
  std::set<int> slots;
  for (int pair = 0; pair < kTilePairs; ++pair) {
    CHECK(slots.insert(start_slot(pair)).second);
    CHECK(start_slot(pair) / (kTilePairs / kApartPairs) == pair % kApartPairs);
  }
  CHECK((*slots.begin() == 0 && *slots.rbegin() == kTilePairs - 1));
}

TEST_CASE("chunks of packed sequences are all of their steps, none of two sequences", "[mamba3]") {
  const std::vector<std::vector<int>> cases{
      {1}, {64}, {65, 0}, {0, 0, 1}, {63, 64, 65, 128}, {0, 200, 0, 0, 1, 64, 0}, std::vector<int>(700, 1),
      {}};
  for (const auto& given : cases) {
    std::vector<int> lengths = given;
    if (lengths.empty())
      for (int i = 0; i < 600; ++i) lengths.push_back(i % 7 * 31);
    std::vector<std::int32_t> borders{0};
    for (const int length : lengths) borders.push_back(borders.back() + length);
    const auto sequences = static_cast<std::int64_t>(lengths.size());
    INFO(sequences << " sequences, " << borders.back() << " steps");
    const std::int64_t most = most_sequence_spans(borders.back(), sequences);
    std::vector<SequenceSpan> chunks(most);
    std::vector<std::int32_t> begins(sequences + 1);
    std::vector<std::int32_t> runs(kSequenceRuns);
    make_sequence_table(borders.data(), sequences, most, {chunks.data(), begins.data()}, runs.data(),
                        ShuffledTeam(1));
    std::int64_t chunk = 0;
    for (std::int64_t i = 0; i < sequences; ++i) {
      CHECK(begins[i] == chunk);
      for (int first = 0; first < lengths[i]; first += kSteps, ++chunk) {
        REQUIRE(chunk < most);
        CHECK(chunks[chunk].start == borders[i] + first);
        CHECK(chunks[chunk].steps == std::min(lengths[i] - first, kSteps));
        CHECK(chunks[chunk].sequence == i);
        CHECK(chunks[chunk].ends == (first == 0 ? SequenceSpan::kOpens : 0) +
                                        (first + kSteps >= lengths[i] ? SequenceSpan::kCloses : 0));
      }
    }
    CHECK(begins[sequences] == chunk);
    for (; chunk < most; ++chunk)
      CHECK((chunks[chunk].start == borders.back() && chunks[chunk].steps == 0 && chunks[chunk].ends == 0));
  }
}

TEST_CASE("blocks that sum heads share those of a group", "[mamba3]") {
  for (const std::int64_t nheads : {1, 6, 32, 48})
    for (const std::int64_t seqlen : {1, 65, 4096}) {
      const Mamba3 scan(mamba3_problem({{"dtype", "bf16"},
                                        {"seqlen", seqlen},
                                        {"nheads", nheads},
                                        {"groups", size(nheads % 3 == 0 ? 3 : 1)},
                                        {"headdim", size(64)},
                                        {"dstate", size(128)}},
                                       mamba3_siso_bwd()));
      const Plan plan(scan, HeadSums::block);
      const std::int64_t heads = nheads / plan.groups;
      CHECK(plan.slices * plan.per_slice >= heads);
      CHECK((plan.slices - 1) * plan.per_slice < heads);
    }
}

TEST_CASE("spans take each chunk of each head once", "[mamba3]") {
  for (const std::int64_t rank : {1, 2, 4, 8})
    for (const std::int64_t seqlen : {1, 8, 63, 64, 65, 200}) {
      INFO("rank " << rank << ", seqlen " << seqlen);
      const Plan plan(Mamba3(mamba3_problem({{"dtype", "bf16"},
                                             {"batch", size(2)},
                                             {"seqlen", seqlen},
                                             {"nheads", size(3)},
                                             {"headdim", size(8)},
                                             {"dstate", size(8)},
                                             {"mimo_rank", rank}},
                                            mamba3_mimo_bwd())),
                      HeadSums::block);
      std::set<std::int64_t> rows;
      for (std::int64_t index = 0; index < plan.batch * plan.spans * plan.nheads; ++index) {
        const Span span(plan, index);
        for (int first = 0; first < span.steps; first += plan.chunk_steps) {
          const Row row(plan, span.row_of(plan, first / plan.chunk_steps));
          CHECK(rows.insert(row.index).second);
          CHECK((row.b == span.b && row.head == span.head && row.start == span.start + first));
          CHECK(row.steps == std::min(plan.chunk_steps, span.steps - first));
        }
      }
      CHECK(static_cast<std::int64_t>(rows.size()) == plan.rows);
    }
}
