// The fp64 reference of Mamba-3 against its definition (definition.h), and against what is known of it: what
// it is without rotation, in parts, with equal ranks, in another frame.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.h"
#include "catch.h"
#include "ops/selective_scan/selective_scan.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "reference/mamba3/definition.h"
#include "support/mamba3_problem.h"
#include "verify/tolerance.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

const double kPi = std::numbers::pi;

std::vector<Problem> forward_problems() {
  std::vector<Problem> all = mamba3_scans(mamba3_siso_fwd(), mamba3_mimo_fwd());
  for (const bool on : {false, true}) {
    Axes axes{{"batch", size(3)}, {"groups", size(on ? 2 : 1)}, {"z", on}, {"D", !on}, {"form", "siso"}};
    all.push_back(mamba3_problem(mamba3_with_sizes(axes), mamba3_step()));
    axes.merge(Axes{{"mimo_rank", size(3)}, {"out_reduce", on}, {"outproj_norm", on}});
    axes["form"] = "mimo";
    all.push_back(mamba3_problem(mamba3_with_sizes(axes), mamba3_step()));
  }
  return all;
}

/// |a − b|, of angles on the circle.
double distance(const std::string& tensor, double a, double b) {
  return tensor.ends_with("Angle_State") ? std::abs(std::remainder(a - b, 2 * kPi)) : std::abs(a - b);
}

void check_same(const std::string& name, const std::vector<double>& got, const std::vector<double>& wanted,
                double relative = 1e-13) {
  REQUIRE(got.size() == wanted.size());
  double scale = 1e-3;
  for (const double value : wanted) scale = std::max(scale, std::abs(value));
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, distance(name, got[i], wanted[i]));
  INFO(name << ": largest difference " << worst << " of values up to " << scale);
  CHECK(worst <= relative * scale);
}

const std::vector<double>& out_of(const ReferenceOutputs& outputs, const std::string& name = "out") {
  return outputs.at(name).expected;
}

Problem siso(Axes axes) {
  axes.merge(Axes{{"seqlen", size(37)}, {"groups", size(2)}});
  return mamba3_problem(mamba3_with_sizes(std::move(axes)));
}

const std::vector<std::string> kStates{"Angle_State", "SSM_State", "K_State", "V_State"};

/// Steps [begin, end) of a problem of one sequence; `states` become its input states.
Problem stretch_of(const Problem& whole, const Values& values, std::int64_t begin, std::int64_t end,
                   const ReferenceOutputs* states, Values& part) {
  const Problem problem = whole.with({{"seqlen", end - begin},
                                      {"final_states", true},
                                      {"initial_states", true},
                                      {"cu_seqlens", false},
                                      {"sequences", std::int64_t{1}}});
  for (const auto& spec : specs_of(problem, Role::input)) {
    if (const auto state = spec.name.find("Input_"); state == 0 && states != nullptr) {
      part[spec.name] = out_of(*states, "Final_" + spec.name.substr(6));
      continue;
    }
    const auto& all = values.at(spec.name);
    const auto time = spec.axes.find('l');
    if (time == std::string::npos) {
      part[spec.name] = all;
      continue;
    }
    std::int64_t inner = 1;
    for (std::size_t axis = time + 1; axis < spec.shape.size(); ++axis) inner *= spec.shape[axis];
    const std::int64_t length = whole.size("seqlen");
    for (std::int64_t outer = 0; outer < std::ssize(all) / (length * inner); ++outer)
      part[spec.name].insert(part[spec.name].end(), all.begin() + (outer * length + begin) * inner,
                             all.begin() + (outer * length + end) * inner);
  }
  return problem;
}

}  // namespace

TEST_CASE("Mamba-3's reference is its definition", "[mamba3]") {
  for (const auto& problem : forward_problems()) {
    INFO(problem.id());
    const Values values = drawn_values(problem);
    const auto got = reference_of(problem, values);
    const Mamba3Definition<> wanted(problem, values);
    REQUIRE(got.size() == wanted.out.size());
    for (const auto& [name, output] : got) {
      check_same(name, output.expected, wanted.out.at(name));
      for (const float bound : output.bound) CHECK((std::isfinite(bound) && bound >= 0));
    }
  }
}

TEST_CASE("Mamba-3's reference does not depend on the number of threads", "[mamba3]") {
  const Problem problem = siso({{"z", true}, {"initial_states", true}, {"final_states", true}});
  const Values values = drawn_values(problem);
  const int threads = omp_get_max_threads();
  const auto several = reference_of(problem, values);
  omp_set_num_threads(1);
  const auto one = reference_of(problem, values);
  omp_set_num_threads(threads);
  for (const auto& [name, output] : several) {
    CHECK(output.expected == one.at(name).expected);
    CHECK(output.bound == one.at(name).bound);
    CHECK(output.operand_bound == one.at(name).operand_bound);
  }
}

TEST_CASE("without rotation, and all weight on the step itself, Mamba-3 is Mamba-2", "[mamba3]") {
  const Problem problem = siso({{"z", true}, {"D", true}, {"initial_states", true}, {"final_states", true}});
  Values values = drawn_values(problem);
  const Mamba3 scan(problem);
  const std::vector<double> A{-0.5, -1, -2, -8};
  std::ranges::fill(values.at("Trap"), 64.0);
  std::ranges::fill(values.at("Angles"), 0.0);
  std::ranges::fill(values.at("Input_Angle_State"), 0.0);
  for (const char* bias : {"Q_bias", "K_bias"}) std::ranges::fill(values.at(bias), 0.0);
  for (double& dt : values.at("DT")) dt = std::max(0x1p-6, std::floor(dt * 64) / 64);  // A·DT in f32
  Values ssd;
  ssd["dt"].resize(values.at("DT").size());
  for (std::int64_t i = 0; i < std::ssize(values.at("DT")); ++i) {
    const std::int64_t head = i / scan.seqlen % scan.nheads;
    values.at("ADT")[i] = A[head] * values.at("DT")[i];
    ssd["dt"][(i / scan.seqlen / scan.nheads * scan.seqlen + i % scan.seqlen) * scan.nheads + head] =
        values.at("DT")[i];
  }
  ssd["x"] = values.at("V");
  ssd["A"] = A;
  ssd["B"] = values.at("K");
  ssd["C"] = values.at("Q");
  ssd["D"] = values.at("D");
  ssd["z"] = values.at("Z");
  ssd["initial_states"] = values.at("Input_SSM_State");
  const Problem mamba2(ssd_chunk_scan_fwd(), {{"dtype", "f32"},
                                              {"batch", scan.batch},
                                              {"seqlen", scan.seqlen},
                                              {"nheads", scan.nheads},
                                              {"headdim", scan.headdim},
                                              {"dstate", scan.dstate},
                                              {"groups", scan.groups},
                                              {"dt_bias", false},
                                              {"dt_softplus", false},
                                              {"initial_states", true},
                                              {"final_states", true}});
  const auto got = reference_of(problem, values);
  const auto wanted = reference_of(mamba2, ssd);
  check_same("out", out_of(got), out_of(wanted));
  check_same("state", out_of(got, "Final_SSM_State"), out_of(wanted, "final_states"));
}

TEST_CASE("without rotation, and half the weight on either step, Mamba-3 is the trapezoidal rule",
          "[mamba3]") {
  const Problem problem = siso({{"nheads", size(2)}, {"groups", size(2)}, {"headdim", size(1)}, {"D", true}});
  Values values = drawn_values(problem);
  const Mamba3 scan(problem);
  std::ranges::fill(values.at("Trap"), 0.0);
  std::ranges::fill(values.at("Angles"), 0.0);
  for (const char* bias : {"Q_bias", "K_bias"}) std::ranges::fill(values.at(bias), 0.0);
  for (double& dt : values.at("DT")) dt = std::max(0x1p-6, std::floor(dt * 64) / 64);
  Values plain{{"delta", values.at("DT")}, {"A", {}}, {"D", values.at("D")}};  // layout bdl
  for (std::int64_t h = 0; h < scan.nheads; ++h)
    plain["A"].insert(plain["A"].end(), static_cast<std::size_t>(scan.dstate), h == 0 ? -1.0 : -4.0);
  for (std::int64_t i = 0; i < std::ssize(values.at("DT")); ++i)
    values.at("ADT")[i] = (i / scan.seqlen == 0 ? -1 : -4) * values.at("DT")[i];
  const auto transposed = [&](const char* name, std::int64_t inner) {  // (L, inner) to (inner, L)
    std::vector<double> all;
    for (std::int64_t i = 0; i < inner; ++i)
      for (std::int64_t t = 0; t < scan.seqlen; ++t) all.push_back(values.at(name)[t * inner + i]);
    return all;
  };
  plain["u"] = transposed("V", scan.nheads);
  plain["B"] = transposed("K", scan.groups * scan.dstate);
  plain["C"] = transposed("Q", scan.groups * scan.dstate);
  const Problem scalar(selective_scan_fwd(), {{"method", "trapezoidal"},
                                              {"dtype", "f32"},
                                              {"batch", size(1)},
                                              {"dim", scan.nheads},
                                              {"seqlen", scan.seqlen},
                                              {"dstate", scan.dstate},
                                              {"groups", scan.groups},
                                              {"z", false},
                                              {"delta_bias", false},
                                              {"delta_softplus", false}});
  const auto wanted = out_of(reference_of(scalar, plain));
  const auto got = out_of(reference_of(problem, values));
  for (std::int64_t t = 0; t < scan.seqlen; ++t)
    for (std::int64_t h = 0; h < scan.nheads; ++h)
      CHECK(got[t * scan.nheads + h] == Approx(wanted[h * scan.seqlen + t]).epsilon(1e-12).margin(1e-13));
}

TEST_CASE("Mamba-3's scan goes on from its states, and packed sequences are on their own", "[mamba3]") {
  for (const OpSpec* op : {&mamba3_siso_fwd(), &mamba3_mimo_fwd()}) {
    const Problem whole = mamba3_problem(mamba3_with_sizes({{"seqlen", size(30)},
                                                            {"cu_seqlens", true},
                                                            {"sequences", size(1)},
                                                            {"initial_states", true},
                                                            {"final_states", true},
                                                            {"z", true}}),
                                         *op);
    const Values values = drawn_values(whole);
    const auto at_once = reference_of(whole, values);
    Values first;
    Values second;
    const auto head = reference_of(stretch_of(whole, values, 0, 13, nullptr, first), first);
    const auto tail = reference_of(stretch_of(whole, values, 13, 30, &head, second), second);
    std::vector<double> out = out_of(head);
    out.insert(out.end(), out_of(tail).begin(), out_of(tail).end());
    // States are rounded to f32 on the way.
    check_same("out", out, out_of(at_once), 1e-6);
    for (const auto& state : kStates)
      check_same(state, out_of(tail, "Final_" + state), out_of(at_once, "Final_" + state), 2e-6);

    const Problem packed = whole.with({{"sequences", std::int64_t{4}}});
    Values four = drawn_values(packed);
    four.at("cu_seqlens") = {0, 1, 1, 19, 30};
    const auto together = reference_of(packed, four);
    std::vector<double> joined;
    for (std::size_t m = 0; m < 4; ++m) {
      const auto begin = static_cast<std::int64_t>(four.at("cu_seqlens")[m]);
      const auto end = static_cast<std::int64_t>(four.at("cu_seqlens")[m + 1]);
      const auto state_of = [&](const Values& all, const std::string& name) {
        const auto& of_all = all.at(name);
        const auto each = std::ssize(of_all) / 4;
        return std::vector<double>(of_all.begin() + static_cast<std::int64_t>(m) * each,
                                   of_all.begin() + static_cast<std::int64_t>(m + 1) * each);
      };
      Values finals;
      for (const auto& state : kStates) finals[state] = out_of(together, "Final_" + state);
      if (begin == end) {
        for (const auto& state : kStates)
          check_same(state, state_of(finals, state), state_of(four, "Input_" + state), 1e-15);
        continue;
      }
      Values of_all = four;
      for (const auto& state : kStates) of_all.at("Input_" + state) = state_of(four, "Input_" + state);
      Values own;
      const auto alone = reference_of(stretch_of(packed, of_all, begin, end, nullptr, own), own);
      joined.insert(joined.end(), out_of(alone).begin(), out_of(alone).end());
      for (const auto& state : kStates)
        check_same(state, state_of(finals, state), out_of(alone, "Final_" + state), 1e-15);
    }
    check_same("out", joined, out_of(together), 1e-15);
  }
}

TEST_CASE("cu_seqlens has to end where the sequences do", "[mamba3]") {
  const Problem problem = mamba3_problem({{"seqlen", size(5)}, {"cu_seqlens", true}, {"sequences", size(2)}});
  Values values = drawn_values(problem);
  values.at("cu_seqlens") = {0, 2, 4};
  CHECK_THROWS_AS(reference_of(problem, values), UsageError);
}

TEST_CASE("one rank without projections is SISO with states in another order", "[mamba3]") {
  const Axes axes = mamba3_with_sizes({{"seqlen", size(20)},
                                       {"batch", size(2)},
                                       {"z", true},
                                       {"D", true},
                                       {"rope_angles", size(3)},
                                       {"initial_states", true},
                                       {"final_states", true}});
  const Problem plain = mamba3_problem(axes);
  Axes with_rank = axes;
  with_rank["mimo_rank"] = size(1);
  const Problem ranked = mamba3_problem(with_rank, mamba3_mimo_fwd());
  const Mamba3 scan(plain);
  const Values values = drawn_values(plain);
  Values moved = values;
  // halves: states i and i + N/2 are a pair; interleaved: 2i and 2i + 1
  const auto reordered = [&](const std::vector<double>& from) {
    std::vector<double> to(from.size());
    for (std::int64_t i = 0; i < std::ssize(from); ++i) {
      const std::int64_t n = i % scan.dstate;
      const std::int64_t half = scan.dstate / 2;
      to[i] = from[i - n + (n < half ? 2 * n : 2 * (n - half) + 1)];
    }
    return to;
  };
  for (const char* name : {"Q", "K", "Q_bias", "K_bias", "Input_SSM_State", "Input_K_State"})
    moved.at(name) = reordered(values.at(name));
  for (const char* name : {"MIMO_V", "MIMO_Z", "MIMO_Out"})
    moved[name].assign(static_cast<std::size_t>(scan.nheads * scan.headdim), 1);
  const auto wanted = reference_of(plain, values);
  const auto got = reference_of(ranked, moved);
  check_same("out", out_of(got), out_of(wanted));
  for (const char* name : {"Final_SSM_State", "Final_K_State"})
    check_same(name, out_of(got, name), reordered(out_of(wanted, name)));
}

TEST_CASE("equal ranks that share the input are SISO", "[mamba3]") {
  constexpr std::int64_t kRank = 4;
  const Axes axes =
      mamba3_with_sizes({{"seqlen", size(20)}, {"z", true}, {"D", true}, {"rotary_pairing", "halves"}});
  const Problem plain = mamba3_problem(axes);
  Axes with_rank = axes;
  with_rank["mimo_rank"] = kRank;
  const Problem ranked = mamba3_problem(with_rank, mamba3_mimo_fwd());
  const Mamba3 scan(plain);
  const Values values = drawn_values(plain);
  Values repeated = values;
  const auto repeat = [&](const char* name, std::int64_t inner) {
    repeated.at(name).clear();
    for (std::int64_t i = 0; i < std::ssize(values.at(name)); i += inner)
      for (std::int64_t r = 0; r < kRank; ++r)
        repeated.at(name).insert(repeated.at(name).end(), values.at(name).begin() + i,
                                 values.at(name).begin() + i + inner);
  };
  for (const char* name : {"Q", "K"}) repeat(name, scan.groups * scan.dstate);
  for (const char* name : {"Q_bias", "K_bias"}) repeat(name, scan.dstate);
  const auto count = static_cast<std::size_t>(scan.nheads * kRank * scan.headdim);
  for (const char* name : {"MIMO_V", "MIMO_Out"}) repeated[name].assign(count, 1.0 / kRank);
  repeated["MIMO_Z"].assign(count, 1);
  for (double& skip : repeated.at("D")) skip *= kRank;
  check_same("out", out_of(reference_of(ranked, repeated)), out_of(reference_of(plain, values)));
}

TEST_CASE("out does not depend on the frame that angles start from", "[mamba3]") {
  for (const char* pairing : {"interleaved", "halves"}) {
    const Problem problem =
        siso({{"initial_states", true}, {"final_states", true}, {"rotary_pairing", pairing}});
    const Mamba3 scan(problem);
    Values values = drawn_values(problem);
    for (const char* state : {"Input_SSM_State", "Input_K_State"}) std::ranges::fill(values.at(state), 0.0);
    const auto before = reference_of(problem, values);
    for (double& angle : values.at("Input_Angle_State")) angle += 0.75;  // f32 rounds both sums
    const auto after = reference_of(problem, values);
    check_same("out", out_of(after), out_of(before), 1e-6);
    const std::vector<double> k = out_of(before, "Final_K_State");
    const std::vector<double> turned = out_of(after, "Final_K_State");
    for (std::int64_t h = 0; h < scan.nheads; ++h)
      for (std::int64_t i = 0; i < scan.angles; ++i) {
        const std::int64_t first = h * scan.dstate + scan.first_of_pair(i);
        const std::int64_t second = h * scan.dstate + scan.second_of_pair(i);
        CHECK(turned[first] == Approx(k[first] * std::cos(0.75) - k[second] * std::sin(0.75)).margin(1e-5));
        CHECK(turned[second] == Approx(k[first] * std::sin(0.75) + k[second] * std::cos(0.75)).margin(1e-5));
      }
  }
}

TEST_CASE("angles of the other sign with pairs mirrored give the same out", "[mamba3]") {
  const Problem problem = siso({{"initial_states", true}, {"z", true}});
  const Mamba3 scan(problem);
  const Values values = drawn_values(problem);
  Values mirrored = values;
  for (const char* name : {"Angles", "Input_Angle_State"})
    for (double& value : mirrored.at(name)) value = -value;
  for (const char* name : {"Q", "K", "Q_bias", "K_bias", "Input_SSM_State", "Input_K_State"})
    for (std::int64_t i = 0; i < std::ssize(mirrored.at(name)); ++i)
      if (i % scan.dstate % 2 == 1) mirrored.at(name)[i] = -mirrored.at(name)[i];
  check_same("out", out_of(reference_of(problem, mirrored)), out_of(reference_of(problem, values)), 1e-15);
}

TEST_CASE("with no weight on the step itself out does not depend on its input", "[mamba3]") {
  const Problem problem = siso({});
  const Mamba3 scan(problem);
  Values values = drawn_values(problem);
  std::ranges::fill(values.at("Trap"), -64.0);
  const auto before = out_of(reference_of(problem, values));
  const std::int64_t row = scan.nheads * scan.headdim;
  for (std::int64_t i = 20 * row; i < 21 * row; ++i) values.at("V")[i] += 1;
  const auto after = out_of(reference_of(problem, values));
  for (std::int64_t i = 0; i < 21 * row; ++i) CHECK(std::abs(after[i] - before[i]) < 1e-20);
  CHECK(std::abs(after[21 * row] - before[21 * row]) > 1e-6);
}

TEST_CASE("rates far out turn a state by half a turn per unit of time", "[mamba3]") {
  Problem problem = mamba3_problem({{"seqlen", size(6)}, {"final_states", true}});
  Values values = drawn_values(problem);
  for (const auto& [name, value] : std::map<std::string, double>{
           {"Angles", 20}, {"DT", 1}, {"ADT", 0}, {"Trap", 64}, {"Q_bias", 0}, {"K_bias", 0}, {"V", 0}})
    std::ranges::fill(values.at(name), value);
  std::ranges::fill(values.at("Q"), 1.0);
  std::ranges::fill(values.at("K"), 1.0);
  values.at("V")[0] = 1;
  const auto got = reference_of(problem, values);
  for (std::size_t t = 0; t < 6; ++t) CHECK(out_of(got)[t] == Approx(t % 2 == 0 ? 2.0 : -2.0));
  CHECK(out_of(got, "Final_Angle_State")[0] == Approx(0).margin(1e-12));
  CHECK(got.at("Final_Angle_State").period == 2 * kPi);
}

TEST_CASE("a decay over two steps that f32 cannot hold may lose what a large input left", "[mamba3]") {
  const Problem problem = mamba3_problem({{"seqlen", size(3)}});
  Values values = drawn_values(problem);
  for (const auto& [name, value] : std::map<std::string, double>{
           {"Angles", 0}, {"DT", 1}, {"ADT", -50}, {"Trap", 64}, {"Q_bias", 0}, {"K_bias", 0}, {"V", 0}})
    std::ranges::fill(values.at(name), value);
  std::ranges::fill(values.at("Q"), 1.0);
  std::ranges::fill(values.at("K"), 1.0);
  values.at("V")[0] = 1e30;
  const auto expectation = reference_of(problem, values).at("out");
  const auto tolerance_at = [&](std::int64_t t) {
    return tolerance(expectation.expectation().at(t), DType::f32, {});
  };
  CHECK(expectation.expected[1] == Approx(2e30 * std::exp(-50.0)));
  CHECK(tolerance_at(1) < 1e-3 * expectation.expected[1]);
  CHECK(expectation.expected[2] == Approx(2e30 * std::exp(-100.0)));
  CHECK(tolerance_at(2) > expectation.expected[2]);
}

TEST_CASE("Mamba-3's tolerances in f16 have room for V·MIMO_V where that is small", "[mamba3]") {
  const Problem problem = mamba3_problem({{"dtype", "f16"},
                                          {"headdim", size(2)},
                                          {"mimo_rank", size(1)},
                                          {"out_reduce", true},
                                          {"final_states", true}},
                                         mamba3_mimo_fwd());
  const double v = GENERATE(0x1p-3, 46 * 0x1p-24);
  constexpr double kUp = 0.141F;
  const double operand = f16_to_float(float_to_f16(static_cast<float>(v * kUp)));
  const double relative = std::abs(operand / (v * kUp) - 1);
  CHECK((relative > 0.05) == (v < 0x1p-14));  // 6.49 units of the smallest number become 6
  for (const double other : {0.0, 86.0}) {
    INFO("V " << v << " beside " << other);
    Values values = drawn_values(problem);
    values.at("V") = {v, other};
    values.at("MIMO_V") = {kUp, kUp};
    const auto outputs = reference_of(problem, values);
    const ReferenceOutput& out = outputs.at("out");
    const double error = relative * std::abs(out.expected[0]);
    const double allowed = tolerance(out.expectation().at(0), DType::f32, {Math::f16});
    CHECK(error <= allowed);
    CHECK(allowed < 40 * std::max(error, 0x1p-11 * std::abs(out.expected[0])));
    const ReferenceOutput& state = outputs.at("Final_SSM_State");
    for (std::int64_t n = 0; n < problem.size("dstate"); ++n)
      CHECK(relative * std::abs(state.expected[n]) <=
            tolerance(state.expectation().at(n), DType::f32, {Math::f16}));
  }
}

TEST_CASE("a step of no length leaves the states alone", "[mamba3]") {
  const Problem problem =
      mamba3_problem(mamba3_with_sizes({{"form", "siso"}, {"batch", size(2)}}), mamba3_step());
  Values values = drawn_values(problem);
  for (const char* name : {"ADT", "DT"}) std::ranges::fill(values.at(name), 0.0);
  const auto got = reference_of(problem, values);
  for (const char* name : {"SSM_State", "Angle_State"})
    check_same(name, out_of(got, name), values.at(name), 1e-15);
  CHECK(std::ranges::any_of(out_of(got), [](double value) { return value != 0; }));
}
