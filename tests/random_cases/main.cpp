// Random cases of every operation, every implementation of a device, against the fp64 reference. Case number
// i of a seed is the same on every machine, whatever else is run. Exit code 1 where one failed. With --bounds
// tolerances are held against the values that they are for.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>

#include "base/glob.h"
#include "support/bound_sizes.h"
#include "support/random_cases.h"
#include "support/run_plan.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

struct Options {
  std::uint64_t seed = std::random_device{}();
  std::int64_t first = 0;
  std::int64_t cases = 1000;
  double seconds = 0;  // 0: no limit
  double bounds = 0;   // 0: run implementations
  std::string op = "*";
  std::string id = "*";
  std::string device = "cpu";
  DrawnSizes sizes;
};

/// The largest values of an implementation's results.
struct Largest {
  double value = 0;
  std::string id = {};

  void take(double other, const std::string& of) {
    if (other > value) *this = {other, of};
  }
};

class Tally {
 public:
  void add(const CaseResult& result) {
    ++counts_[result.status];
    const std::string id = result.the_case.id();
    if (result.status == Status::fail || result.status == Status::error || result.status == Status::invalid) {
      fmt::print("FAILED {} {}: {}\n", result.impl, id, result.reason);
      std::fflush(stdout);
    }
    for (const auto& [name, output] : result.outputs) {
      const std::string where =
          fmt::format("{:22} {:18} {}", result.the_case.problem.op().name, result.impl, name);
      largest_[{where, "err/tol"}].take(output.tolerance_ratio, id);
      largest_[{where, "rms"}].take(output.rms_ratio, id);
      largest_[{where, "decay"}].take(output.decay_bias_ratio, id);
    }
  }

  int failures() const {
    int sum = 0;
    for (const Status status : {Status::fail, Status::error, Status::invalid})
      if (const auto found = counts_.find(status); found != counts_.end()) sum += found->second;
    return sum;
  }

  void print(bool details) const {
    if (details)
      for (const auto& [key, most] : largest_)
        if (most.value > 0)
          fmt::print("{:50} {:8} {:7.3f}  {}\n", key.first, key.second, most.value, most.id);
    for (const auto& [status, count] : counts_) fmt::print("{} {}  ", count, name_of(status));
    fmt::print("\n");
  }

 private:
  std::map<Status, int> counts_;
  std::map<std::pair<std::string, std::string>, Largest> largest_;
};

/// Case `index` of a seed: of one operation after the other.
Case case_at(const Options& options, const std::vector<const OpSpec*>& ops, std::int64_t index) {
  std::seed_seq seed{options.seed & 0xFFFFFFFFU, options.seed >> 32U, static_cast<std::uint64_t>(index)};
  std::array<std::uint32_t, 2> bits{};
  seed.generate(bits.begin(), bits.end());
  CaseDraw draw(std::uint64_t{bits[0]} << 32U | bits[1]);
  return draw.draw(*ops[static_cast<std::size_t>(index) % ops.size()], options.sizes);
}

/// Calls `of_cases` with the drawn cases, some at a time, until there are enough or the time is over. Returns
/// how many were drawn.
template <class F>
std::int64_t draw_cases(const Options& options, const std::vector<const OpSpec*>& ops, const F& of_cases) {
  const auto start = std::chrono::steady_clock::now();
  const auto is_over = [&] {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    return options.seconds > 0 && passed.count() > options.seconds;
  };
  constexpr std::int64_t kAtOnce = 50;
  std::int64_t done = 0;
  while (done < options.cases && !is_over()) {
    std::vector<Case> cases;
    const std::int64_t end = std::min(options.cases, done + kAtOnce);
    for (; done < end; ++done)
      if (Case drawn = case_at(options, ops, options.first + done); matches_glob(options.id, drawn.id()))
        cases.push_back(std::move(drawn));
    of_cases(std::move(cases));
  }
  return done;
}

/// Prints outputs whose tolerances are so many times their values, and needlessly.
bool search_bounds(const Options& options, const std::vector<const OpSpec*>& ops) {
  int found = 0;
  const std::int64_t done = draw_cases(options, ops, [&](const std::vector<Case>& cases) {
    for (const auto& one : cases) {
      if (!is_stable(one.problem)) continue;
      for (const auto& [output, relative] : needless_bounds(one, options.bounds)) {
        ++found;
        fmt::print("{:9.2g} {:15} {}\n", relative, output, one.id());
        std::fflush(stdout);
      }
    }
  });
  fmt::print("{} cases: {} outputs\n", done, found);
  return found == 0;
}

bool run_implementations(const Options& options, const std::vector<const OpSpec*>& ops,
                         const DeviceInfo& device, bool details) {
  Tally tally;
  const std::int64_t done = draw_cases(options, ops, [&](std::vector<Case> cases) {
    for (const auto& result : run_plan(make_plan(std::move(cases), {device}, {}))) tally.add(result);
  });
  fmt::print("{} cases: ", done);
  tally.print(details);
  return tally.failures() == 0;
}

int run(const Options& options, bool details) {
  const auto kind = options.device == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
  const auto devices = list_devices();
  const auto device = std::ranges::find(devices, kind, &DeviceInfo::kind);
  if (device == devices.end()) {
    fmt::print(stderr, "there is no device '{}'\n", options.device);
    return 2;
  }
  auto ops = ops_on(kind);
  std::erase_if(ops, [&](const OpSpec* op) { return !matches_glob(options.op, op->name); });
  fmt::print("--seed {} --first {} --most-work {} --most-steps {}\n", options.seed, options.first,
             options.sizes.most_work, options.sizes.most_steps);
  std::fflush(stdout);
  const bool passed =
      options.bounds > 0 ? search_bounds(options, ops) : run_implementations(options, ops, *device, details);
  return passed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Random cases of every operation against the reference");
  Options options;
  bool details = false;
  app.add_option("--seed", options.seed, "of the cases; random where it is not given");
  app.add_option("--first", options.first, "number of the first case");
  app.add_option("--cases", options.cases, "how many");
  app.add_option("--seconds", options.seconds, "start no more after so long");
  app.add_option("--op", options.op, "glob on operations");
  app.add_option("--case", options.id, "glob on ids: others are drawn, and not run");
  app.add_option("--device", options.device, "cpu or cuda");
  app.add_option("--most-work", options.sizes.most_work, "product of a case's sizes");
  app.add_option("--most-steps", options.sizes.most_steps, "of a sequence");
  app.add_option("--bounds", options.bounds,
                 "print outputs whose tolerances are so many times their values, and needlessly");
  app.add_flag("--details", details, "print the largest error of each output, and its case");
  CLI11_PARSE(app, argc, argv);
  return run(options, details);
}
