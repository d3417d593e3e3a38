// Outputs of mamba_ssm's kernels (tests/golden), right as they are, with the mistakes that kernels have: each
// has to fail, to be located, and to be called by its name.

#include "check/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "base/errors.h"
#include "catch.h"
#include "inputs/inputs.h"
#include "reference/reference.h"
#include "report/verdict_report.h"
#include "support/host_tensors.h"
#include "support/random_cases.h"
#include "verify/tolerance.h"

using namespace ssmbench;

namespace {

CaseRead golden(const std::string& name) {
  return InterchangeFile(std::string(SSMBENCH_SOURCE_DIR) + "/tests/golden/" + name + ".h5").read_case(name);
}

HostTensor& output(CaseRead& read, const std::string& name) {
  return *std::ranges::find(read.outputs, name, [](const HostTensor& tensor) { return tensor.spec.name; });
}

const OutputVerdict& of(const CaseVerdict& verdict, std::string_view name) {
  return *std::ranges::find(verdict.outputs, name, &OutputVerdict::name);
}

/// Changes the elements of a real output whose (batch, channel, step) or other index satisfies the condition.
void spoil(HostTensor& tensor, const std::function<bool(const Shape&)>& where, double factor = 1.5) {
  for (std::int64_t i = 0; i < element_count(tensor.spec.shape); ++i) {
    const std::int64_t offset = test::offset_in(tensor.view(), i);
    if (where(index_of(i, tensor.spec.shape)))
      store_from_double(tensor.buffer.data(), offset, tensor.spec.dtype,
                        factor * load_as_double(tensor.buffer.data(), offset, tensor.spec.dtype) + 1);
  }
}

/// The same for any dtype: of complex elements the real part.
void spoil_real_part(HostTensor& tensor, const std::function<bool(const Shape&)>& where) {
  const TensorView view = real_view(tensor.view());
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) {
    Shape index = index_of(i, view.shape);
    if (tensor.spec.dtype == DType::c64) {
      if (index.back() == 1) continue;
      index.pop_back();
    }
    const std::int64_t offset = test::offset_in(view, i);
    if (where(index))
      store_from_double(view.data, offset, view.dtype,
                        1.5 * load_as_double(view.data, offset, view.dtype) + 1000);
  }
}

/// An index without the axis of real and imaginary part that `like` does not have.
Shape without_part(Shape index, const Shape& like) {
  index.resize(like.size());
  return index;
}

CaseVerdict judge(const CaseRead& read) {
  return judge_case(read, test::never_stop);
}

/// The outputs of the reference for another problem or other inputs, in place of those of the file.
void replace_outputs(CaseRead& read, const Problem& problem, const TensorSet& inputs) {
  const auto wrong = compute_reference(problem, inputs, test::never_stop);
  for (auto& tensor : read.outputs) {
    const auto found = wrong.find(tensor.spec.name);
    if (found == wrong.end()) continue;
    for (std::int64_t i = 0; i < element_count(tensor.spec.shape); ++i)
      store_from_double(tensor.buffer.data(), test::offset_in(tensor.view(), i), tensor.spec.dtype,
                        found->second.expected[i]);
  }
}

}  // namespace

TEST_CASE("an untouched file passes, without patterns or explanation") {
  const CaseVerdict verdict = judge(golden("m1_fwd_f32"));
  CHECK(verdict.passed());
  CHECK(verdict.explanation.empty());
  for (const auto& each : verdict.outputs) {
    CHECK(each.patterns.empty());
    CHECK(each.profile.bad == 0);
    std::int64_t elements = 0;
    for (const auto count : each.profile.histogram) elements += count;
    CHECK(elements == each.comparison.judged);
  }
  CHECK(of(verdict, "out").comparison.over_time.size() == 16);
  CHECK(of(verdict, "out").comparison.over_time.front().first == 0);
  CHECK(of(verdict, "out").comparison.over_time.back().last == 199);
  CHECK(of(verdict, "last_state").comparison.over_time.empty());
}

TEST_CASE("one wrong element is found") {
  CaseRead read = golden("m1_fwd_f32");  // 2×8×200×16
  spoil(output(read, "out"), [](const Shape& i) { return i == Shape{1, 5, 123}; });
  const CaseVerdict verdict = judge(read);
  CHECK_FALSE(verdict.passed());
  const OutputVerdict out = of(verdict, "out");
  CHECK(out.patterns == std::vector<std::string>{"one element"});
  CHECK(out.profile.bad == 1);
  CHECK(out.profile.first_bad == Shape{1, 5, 123});
  CHECK(of(verdict, "last_state").comparison.passed());
}

TEST_CASE("a NaN is counted apart and found") {
  CaseRead read = golden("m1_fwd_f32");
  static_cast<float*>(output(read, "out").buffer.data())[200 + 7] = std::numeric_limits<float>::quiet_NaN();
  const OutputVerdict out = of(judge(read), "out");
  CHECK(out.profile.histogram.back() == 1);
  CHECK(out.profile.first_bad == Shape{0, 1, 7});
}

TEST_CASE("parts that are wrong are described") {
  struct Part {
    const char *file, *pattern;
    std::function<bool(const Shape&)> where;
  };
  const std::vector<Part> parts{
      {"m1_fwd_f32", "only l 64 to 199, from a multiple of 64 on: is the state carried from chunk to chunk?",
       [](const Shape& i) { return i[2] >= 64; }},
      {"m1_fwd_f32", "only l 64 to 127, one chunk of 64", [](const Shape& i) { return i[2] / 64 == 1; }},
      {"m1_fwd_f32", "only l 192 to 199, only after the last whole chunk of 64: is the tail masked?",
       [](const Shape& i) { return i[2] >= 192; }},
      {"m1_fwd_f32", "only b 1", [](const Shape& i) { return i[0] == 1; }},
      {"m1_fwd_f32", "only d 3", [](const Shape& i) { return i[1] == 3; }},
      {"m1_fwd_f32_groups2_noz", "only d 4 to 7, group 1 of 2", [](const Shape& i) { return i[1] >= 4; }},
      {"m1_fwd_f32", "only l 41 to 199", [](const Shape& i) { return i[2] >= 41; }},
  };
  for (const auto& part : parts) {
    CAPTURE(part.pattern);
    CaseRead read = golden(part.file);
    spoil(output(read, "out"), part.where);
    CHECK(of(judge(read), "out").patterns == std::vector<std::string>{part.pattern});
  }
}

TEST_CASE("one wrong gradient is the only one that fails") {
  for (const char* name : {"du", "ddelta", "dA", "dB", "dC", "dD", "dz", "ddelta_bias"}) {
    CAPTURE(name);
    CaseRead read = golden("m1_bwd_f32");
    spoil(
        output(read, name), [](const Shape&) { return true; }, 1.01);
    const CaseVerdict verdict = judge(read);
    for (const auto& each : verdict.outputs) CHECK(each.comparison.passed() == (each.name != name));
    CHECK(of(verdict, name).patterns.empty());  // all of it is wrong
  }
}

TEST_CASE("golden files: one changed element of any output is located") {
  for (const std::string file :
       {"m1_fwd_bf16", "m1_fwd_c64_var_bc", "m1_bwd_f32", "step_m1_bf16", "ssd_fwd_f32"}) {
    CaseRead read = golden(file);
    std::map<std::string, Shape> changed;
    for (auto& tensor : read.outputs) {
      const Shape& shape = tensor.spec.shape;
      const Shape at = index_of(element_count(shape) * 2 / 3, shape);
      spoil_real_part(tensor, [&](const Shape& i) { return i == at; });
      changed[tensor.spec.name] = at;
    }
    const CaseVerdict verdict = judge(read);
    for (const auto& each : verdict.outputs) {
      CAPTURE(file, each.name);
      CHECK_FALSE(each.comparison.passed());
      CHECK(each.profile.bad == 1);
      CHECK(without_part(*each.profile.first_bad, changed.at(each.name)) == changed.at(each.name));
      CHECK(each.patterns == std::vector<std::string>{"one element"});
    }
  }
}

TEST_CASE("golden files: a changed chunk, group or batch of any output is located") {
  for (const std::filesystem::path file :
       {"m1_fwd_f32_groups2_noz", "m1_bwd_c64", "step_m1_f32", "ssd_fwd_f32"}) {
    const Problem problem = golden(file).problem;
    const std::int64_t groups = problem.op().find_axis("groups") == nullptr ? 1 : problem.size("groups");
    for (const char letter : {'l', 'd', 'h', 'b'}) {
      CaseRead read = golden(file);
      std::map<std::string, std::string> expected;
      for (auto& tensor : read.outputs) {
        const auto axis = tensor.spec.axes.find(letter);
        if (axis == std::string::npos) continue;
        const std::int64_t extent = tensor.spec.shape[axis];
        // The second chunk of 32 steps, the last group of channels or heads (or channel), the last batch.
        const std::int64_t part = letter == 'l' ? 32 : letter == 'b' ? 1 : groups > 1 ? extent / groups : 1;
        const std::int64_t first = letter == 'l' ? 32 : extent - part;
        if (first + part > extent || first == 0) continue;
        spoil_real_part(tensor, [&](const Shape& i) { return i[axis] >= first && i[axis] < first + part; });
        std::string words = fmt::format("only {} {}", letter, first);
        if (part > 1) words += fmt::format(" to {}", first + part - 1);
        if (letter == 'l') words += ", one chunk of 32";
        if (letter != 'l' && letter != 'b' && groups > 1)
          words += fmt::format(", group {} of {}", groups - 1, groups);
        if (element_count(tensor.spec.shape) / extent * part == 1) words = "one element";
        expected[tensor.spec.name] = words;
      }
      if (expected.empty()) continue;
      for (const auto& each : judge(read).outputs) {
        CAPTURE(file, letter, each.name);
        CHECK(each.comparison.passed() == !expected.contains(each.name));
        if (expected.contains(each.name)) CHECK(each.patterns == std::vector{expected.at(each.name)});
      }
    }
  }
}

TEST_CASE("golden files: every second gradient changed, and only those fail") {
  for (const std::string file : {"m1_bwd_c64", "ssd_bwd_f32"}) {
    for (const std::size_t first : {0, 1}) {
      CaseRead read = golden(file);
      std::set<std::string> changed;
      for (std::size_t i = first; i < read.outputs.size(); i += 2) {
        spoil_real_part(read.outputs[i], [](const Shape&) { return true; });
        changed.insert(read.outputs[i].spec.name);
      }
      for (const auto& each : judge(read).outputs) {
        CAPTURE(file, each.name);
        CHECK(each.comparison.passed() == !changed.contains(each.name));
      }
    }
  }
}

TEST_CASE("what is off by one step is called so") {
  for (const std::int64_t shift : {-1, 1}) {
    CaseRead read = golden("m1_fwd_f32");
    const CaseRead right = golden("m1_fwd_f32");
    const auto* from = static_cast<const float*>(right.outputs[0].buffer.data());
    auto* to = static_cast<float*>(output(read, "out").buffer.data());
    for (std::int64_t i = 0; i < 2 * 8 * 200; ++i)
      if (i % 200 + shift >= 0 && i % 200 + shift < 200) to[i] = from[i + shift];
    CHECK(of(judge(read), "out").patterns ==
          std::vector<std::string>{shift < 0 ? "every step holds what belongs to the step before"
                                             : "every step holds what belongs to the step after"});
  }
}

TEST_CASE("known mistakes are called by their name") {
  const auto without = [](const char* flag) {
    return [flag](CaseRead& read) {
      const Problem problem = read.problem.with({{flag, false}});
      TensorSet inputs;
      for (const auto& spec : problem.tensors())
        if (spec.role == Role::input) inputs.add(spec.name, views_of(read.inputs).at(spec.name));
      replace_outputs(read, problem, inputs);
    };
  };
  const auto swap = [](CaseRead& read) {
    TensorSet inputs = views_of(read.inputs);
    const TensorView B = inputs.at("B");
    inputs.add("B", inputs.at("C"));
    inputs.add("C", B);
    replace_outputs(read, read.problem, inputs);
  };
  struct Mistake {
    const char *file, *explanation;
    std::function<void(CaseRead&)> make;
  };
  const std::vector<Mistake> mistakes{
      {"m1_fwd_f32", "D is not applied", without("D")},
      {"m1_fwd_f32", "z is not applied", without("z")},
      {"m1_fwd_f32", "delta_bias is not applied", without("delta_bias")},
      {"m1_fwd_f32", "delta_softplus is not applied", without("delta_softplus")},
      {"m1_fwd_f32", "B and C are swapped", swap},
      {"m1_fwd_f32", "these are the outputs of method foh",
       [](CaseRead& read) {
         replace_outputs(read, read.problem.with({{"method", "foh"}}), views_of(read.inputs));
       }},
      {"vim_foh", "these are the outputs of method zoh",
       [](CaseRead& read) {
         replace_outputs(read, read.problem.with({{"method", "zoh"}}), views_of(read.inputs));
       }},
      {"m1_bwd_f32", "D is not applied", without("D")},
  };
  for (const auto& mistake : mistakes) {
    CAPTURE(mistake.file, mistake.explanation);
    CaseRead read = golden(mistake.file);
    mistake.make(read);
    const CaseVerdict verdict = judge(read);
    CHECK_FALSE(verdict.passed());
    CHECK(verdict.explanation == mistake.explanation);
  }
}

TEST_CASE("groups that are tiled and not repeated are called so") {
  // Two groups over eight channels: channels 0, 2, 4, 6 get group 0's B and C where they get those of 0 to 3.
  CaseRead read = golden("m1_fwd_f32_groups2_noz");
  const CaseRead right = golden("m1_fwd_f32_groups2_noz");
  constexpr std::int64_t kOrder[]{0, 2, 4, 6, 1, 3, 5, 7};
  const auto channels = [&](const CaseRead& from, CaseRead& to, bool back) {
    const auto move = [&](const HostTensor& source, HostTensor& target) {
      const auto axis = source.spec.axes.find('d');
      if (axis == std::string::npos) return;
      const Shape strides = source.spec.strides();
      for (std::int64_t i = 0; i < element_count(source.spec.shape); ++i) {
        const Shape index = index_of(i, source.spec.shape);
        const std::int64_t at = test::offset_in(source.view(), i);
        const std::int64_t other = at + (kOrder[index[axis]] - index[axis]) * strides[axis];
        const auto* values = static_cast<const float*>(source.buffer.data());
        auto* moved = static_cast<float*>(target.buffer.data());
        moved[back ? other : at] = values[back ? at : other];
      }
    };
    for (std::size_t i = 0; i < from.inputs.size(); ++i) move(from.inputs[i], to.inputs[i]);
    for (std::size_t i = 0; i < from.outputs.size(); ++i) move(from.outputs[i], to.outputs[i]);
  };
  CaseRead ordered = golden("m1_fwd_f32_groups2_noz");
  channels(right, ordered, false);
  replace_outputs(ordered, ordered.problem, views_of(ordered.inputs));
  channels(ordered, read, true);  // inputs as they were, outputs of tiled groups
  const CaseVerdict verdict = judge(read);
  CHECK_FALSE(verdict.passed());
  CHECK(verdict.explanation == "groups are tiled (channel modulo groups) where they should be repeated");
}

TEST_CASE("outputs of any problem that are all wrong fail, whatever axes the problem lacks") {
  for (const OpSpec* op : all_ops()) {
    test::CaseDraw draw(7);
    for (int i = 0; i < 8; ++i) {
      const Case drawn = draw.draw(*op, {.most_work = 10000, .most_steps = 12});
      INFO(drawn.id());
      CaseRead read{.id = drawn.id(),
                    .problem = drawn.problem,
                    .arithmetic = {},
                    .seed = {},
                    .inputs = generate_inputs(drawn.problem, drawn.inputs, test::never_stop),
                    .outputs = {}};
      for (const auto& spec : drawn.problem.tensors()) {
        if (spec.role != Role::output) continue;
        const HostTensor& wrong = read.outputs.emplace_back(spec);
        const TensorView view = real_view(wrong.view());
        for (std::int64_t k = 0; k < element_count(view.shape); ++k)
          store_from_double(view.data, test::offset_in(view, k), view.dtype,
                            30000.0 + static_cast<double>(k));
      }
      CHECK_FALSE(judge(read).passed());
    }
  }
}

TEST_CASE("what is wrong everywhere by less than its tolerance fails as a whole") {
  CaseRead read = golden("m1_fwd_f32");
  HostTensor& out = output(read, "out");
  const auto reference = compute_reference(read.problem, views_of(read.inputs), test::never_stop);
  for (std::int64_t i = 0; i < element_count(out.spec.shape); ++i) {
    const ExpectedElement expected = reference.at("out").expectation().at(i);
    store_from_double(out.buffer.data(), test::offset_in(out.view(), i), DType::f32,
                      expected.value + 0.6 * tolerance(expected, DType::f32, read.arithmetic));
  }
  const CaseVerdict verdict = judge(read);
  CHECK_FALSE(verdict.passed());
  const OutputVerdict& judged = of(verdict, "out");
  CHECK(judged.comparison.tolerance_ratio < 1);
  CHECK(judged.comparison.rms_ratio > 1);
  CHECK(judged.profile.bad == 0);
  CHECK(verdict_text(read, verdict, false).find("each element is within its tolerance, but") !=
        std::string::npos);
}

TEST_CASE("what other frameworks computed on an H200 is judged as results/h200/mamba_ssm.md says") {
  std::vector<std::string> failed;
  int cases = 0;
  for (const std::string name : {"mamba_ssm", "torch"}) {
    const InterchangeFile file(std::string(SSMBENCH_SOURCE_DIR) + "/results/h200/" + name + ".h5");
    for (const auto& id : file.case_ids()) {
      ++cases;
      for (const auto& each : judge(file.read_case(id)).outputs)
        if (!each.comparison.passed()) failed.push_back(name + " " + id.substr(0, 23) + " " + each.name);
    }
  }
  CHECK(cases == 24);
  CHECK(failed == std::vector<std::string>{"mamba_ssm ssd_chunk_scan_bwd-bf16 dx",
                                           "mamba_ssm ssd_chunk_scan_bwd-bf16 dz"});
}
