#pragma once

#include <string_view>
#include <vector>

namespace ssmbench {

/// How long to repeat a launch. Warm-up runs are not timed: `warmup` of them, fewer once `warmup_seconds`
/// were spent. Then at least `min_runs` and for at least `min_seconds`, and on until the median is known well
/// enough (StoppingRule) or `patient_seconds` are over; but no further run is started after `max_seconds` or
/// `max_runs`.
struct TimingPolicy {
  int warmup = 3;
  double warmup_seconds = 0.2;
  int min_runs = 10;
  int max_runs = 1000;
  double min_seconds = 0.2;
  double patient_seconds = 0.5;
  double max_seconds = 2;
  /// The relative standard error of the mean that is good enough: a sixth of the 3 % that a regression has to
  /// have to be called one.
  double precision = 0.005;
};

/// Says when enough samples were taken:
///   "precision"  the standard error of their mean is at most `precision` of it;
///   "plateau"    it is not, for single runs scatter, but the running median has stayed within a band of
///                `precision` while the samples doubled, and the median of that later half is in the band
///                too: more of the same would not tell more;
///   "runs", "time"  a limit of the policy was reached.
/// Knows no clock.
class StoppingRule {
 public:
  explicit StoppingRule(const TimingPolicy& policy) : policy_(policy) {}

  void add(double sample_ms);
  /// Why to stop now that the samples took `seconds` in all, with what was between them; empty: go on.
  std::string_view verdict(double seconds) const;

 private:
  bool is_precise() const;
  bool is_on_plateau() const;

  struct Checkpoint {
    std::size_t samples;
    double median;            ///< of all until there
    double median_of_latest;  ///< of their later half
  };
  TimingPolicy policy_;
  std::vector<double> samples_;
  double mean_ = 0, squares_ = 0;        ///< of the deviations from it (Welford 1962)
  std::vector<Checkpoint> checkpoints_;  ///< each a tenth further than the last, as a median takes its time
};

}  // namespace ssmbench
