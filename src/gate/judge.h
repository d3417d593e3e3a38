#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gate/median_ratio.h"
#include "record/record_reader.h"

namespace ssmbench {

/// The verdict on one time, by the ratio of medians, new over baseline:
enum class Verdict {
  same,    ///< the whole interval is within the limit
  faster,  ///< as slower, the other way around
  /// The ratio is over the limit, and the program is slower with the policy's confidence for all comparisons
  /// of the gate together; where nothing is known of what processes differ by, slower by half of the limit.
  slower,
  inconclusive,  ///< neither: more processes or samples, or a quieter machine, would tell
};
std::string_view name_of(Verdict verdict);

/// What a gate lets through.
struct GatePolicy {
  /// How much slower, as a fraction. Where there is one process a side, half of it is there for what its
  /// samples cannot show: the next process of the same program differs, by the placement of its memory and
  /// the clocks it meets. The default goes with what was assumed, and is tested: processes that differ by
  /// 0.5% (standard deviation), samples by 0.5 to 1% with neighbours alike (correlation 0.3) and one in
  /// thirty far out, 20 to 200 of them. Then the same code is never slower, and 5% is caught in 95 of 100.
  /// With several processes a side nothing is assumed of them: three show 5% where they differ by 0.5%, five
  /// where by 1%, ten where by 2%, and the same code is not slower with any.
  /// On H200s processes of one kernel differed by 0.2 to 1.1%, but of one that is bound by the latency of
  /// memory by 1.7% at one size and 13% at another; samples by 0.2 to 1.4%, correlation −0.5 to 0.5. Of gates
  /// on the same code 17 of 360 with one process a side were then wrong, and none with five or with ten
  /// (tests/gate/on_gpu.py).
  double max_regression = 0.03;
  /// How much an output's tolerance_ratio may grow, as a fraction of it.
  double max_error_growth = 0.25;
  /// The level of each single interval; and of no comparison in a whole gate being slower or faster by chance,
  /// however many there are (corrected_by_holm).
  double confidence = 0.99;
  std::string timing = "hot";
  bool allow_missing = false;  ///< a case that ran in the baseline and is not in the new file
  bool fail_on_inconclusive = false;
};

/// What became of the time of one case and implementation.
struct TimeChange {
  Verdict verdict = Verdict::inconclusive;
  RatioInterval ratio = {};
  double before_ms = 0, after_ms = 0;  ///< medians
  /// Probability of such a ratio if nothing changed: of this comparison alone, and corrected for the number
  /// of comparisons.
  double p_value = 1, corrected_p_value = 1;
  std::size_t processes_before = 0, processes_after = 0;
  std::string reason = {};  ///< where there is no interval: why
};

/// Compares times alone, as the only ones of a gate. Fewer samples than the confidence needs are
/// inconclusive, and what clocks do not resolve (0.1 µs) is no difference. No set is empty.
TimeChange compare_times(const ProcessSamples& before, const ProcessSamples& after, const GatePolicy& policy);

/// Judges them again, as the comparisons of one gate.
void correct_for_number(const std::vector<TimeChange*>& changes, const GatePolicy& policy);

/// What keeps a comparison from passing, the worst last.
enum class Finding { none, inconclusive, slower, worse, crashed };

/// One case and implementation on one device. Of several processes a side has the result that is worst, and
/// of those that are fine one that was verified.
struct Comparison {
  const CaseResult* before = nullptr;   ///< null: only in the new files
  const CaseResult* after = nullptr;    ///< null: missing in the new files
  std::optional<TimeChange> time = {};  ///< where both ran, and at least one was timed
  /// What got worse whatever the speed: a status, errors, what it is judged by, or that it is missing.
  std::vector<std::string> worse = {};
  /// What it is judged by, where that changed and is no looser.
  std::vector<std::string> changes = {};

  const CaseResult& either() const { return after != nullptr ? *after : *before; }
  Finding finding() const;
};

/// Every case and implementation of both sides, in the order of the baseline; those only in the new one at
/// the end. What neither supports is left out. Each file of a side is of another process of the same program;
/// none of a case in some of them is none of that process. The files have to outlive the result. `tell` is
/// called now and then with how many comparisons are done, and of how many.
std::vector<Comparison> compare_results(
    const std::vector<ResultsFile>& before, const std::vector<ResultsFile>& after, const GatePolicy& policy,
    const std::function<void(std::size_t done, std::size_t of)>& tell = {});

/// Whether both are of one process: started in the same second, and the same samples of all that both timed,
/// which is something.
bool is_copy(const ResultsFile& a, const ResultsFile& b);

/// How devices that both files have results of differ in what times depend on: "cuda:0: name was NVIDIA
/// H100, now NVIDIA H200". Versions of compilers and runtime libraries are not among it: they are what a
/// gate may be asked about.
std::vector<std::string> device_differences(const ResultsFile& before, const ResultsFile& after);

}  // namespace ssmbench
