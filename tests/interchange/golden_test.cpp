// The files are described in tests/golden/README.md. Values below are what h5py prints for them, so that this
// reader is held against another one.

#include <complex>

#include "catch.h"
#include "files.h"
#include "interchange/reader.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

std::int64_t operator""_n(unsigned long long number) {
  return static_cast<std::int64_t>(number);
}

CaseRead read_golden(const std::string& name,
                     const std::string& producer = "mamba_ssm 2.3.2.post1 selective_scan_cuda") {
  const InterchangeFile file(std::string(SSMBENCH_SOURCE_DIR) + "/tests/golden/" + name + ".h5");
  CHECK(file.info().producer == producer);
  CHECK(file.info().device == "NVIDIA H200");
  REQUIRE(file.case_ids() == std::vector<std::string>{name});
  return file.read_case(name);
}

const HostTensor& tensor(const std::vector<HostTensor>& tensors, std::string_view name) {
  for (const auto& candidate : tensors)
    if (candidate.spec.name == name) return candidate;
  throw std::runtime_error("no tensor " + std::string(name));
}

double value(const HostTensor& from, std::int64_t index) {
  return load_as_double(from.buffer.data(), index, from.spec.dtype);
}

std::complex<double> complex_value(const HostTensor& from, std::int64_t index) {
  REQUIRE(from.spec.dtype == DType::c64);
  return static_cast<const std::complex<float>*>(from.buffer.data())[index];
}

std::uint16_t bits(const HostTensor& from, std::int64_t index) {
  return static_cast<const std::uint16_t*>(from.buffer.data())[index];
}

std::int64_t last(const HostTensor& of) {
  return element_count(of.spec.shape) - 1;
}

std::vector<std::string> names(const std::vector<HostTensor>& tensors) {
  std::vector<std::string> all;
  for (const auto& each : tensors) all.push_back(each.spec.name);
  return all;
}

}  // namespace

TEST_CASE("golden f32") {
  const CaseRead read = read_golden("m1_fwd_f32");
  const Problem expected(
      *find_op("selective_scan_fwd"),
      {{"dtype", "f32"}, {"batch", 2_n}, {"dim", 8_n}, {"seqlen", 200_n}, {"dstate", 16_n}});
  CHECK(read.problem.axes() == expected.axes());
  CHECK(read.arithmetic == Arithmetic());
  CHECK_FALSE(read.seed);
  CHECK(names(read.outputs) == std::vector<std::string>{"out", "last_state"});
  const HostTensor& B = tensor(read.inputs, "B");
  CHECK(value(B, 0) == -1.0613855123519897);
  CHECK(value(B, (1 * 16 + 8) * 200 + 100) == -0.18483516573905945);  // B[1, 0, 8, 100]
  CHECK(value(tensor(read.inputs, "A"), 4 * 16 + 8) == -11.992071151733398);
  const HostTensor& out = tensor(read.outputs, "out");
  CHECK(value(out, (1 * 8 + 4) * 200 + 100) == 0.15145155787467957);  // out[1, 4, 100]
  CHECK(value(out, last(out)) == 0.057797644287347794);
}

TEST_CASE("golden bf16") {
  const CaseRead read = read_golden("m1_fwd_bf16");
  const Problem expected(
      *find_op("selective_scan_fwd"),
      {{"dtype", "bf16"}, {"batch", 2_n}, {"dim", 16_n}, {"seqlen", 257_n}, {"dstate", 16_n}});
  CHECK(read.problem.axes() == expected.axes());
  const HostTensor& u = tensor(read.inputs, "u");
  CHECK(bits(u, 0) == 0x3dfa);
  CHECK(bits(u, (1 * 16 + 8) * 257 + 128) == 0xbe24);  // u[1, 8, 128]
  CHECK(bits(u, last(u)) == 0x4025);
  CHECK(bits(tensor(read.outputs, "out"), 0) == 0xb997);
  CHECK(value(tensor(read.inputs, "A"), 0) == -1.0352041721343994);
}

TEST_CASE("golden f16") {
  const CaseRead read = read_golden("m1_fwd_f16");
  const Problem expected(
      *find_op("selective_scan_fwd"),
      {{"dtype", "f16"}, {"batch", 2_n}, {"dim", 16_n}, {"seqlen", 96_n}, {"dstate", 16_n}});
  CHECK(read.problem.axes() == expected.axes());
  const HostTensor& C = tensor(read.inputs, "C");
  CHECK(value(C, 0) == 0.12335205078125);
  CHECK(value(C, (1 * 16 + 8) * 96 + 48) == 1.6357421875);  // C[1, 0, 8, 48]
  CHECK(value(C, last(C)) == -0.040252685546875);
  CHECK(value(tensor(read.outputs, "out"), 0) == -0.057342529296875);
}

TEST_CASE("golden f32, constant B and C") {
  const CaseRead read = read_golden("m1_fwd_f32_const_bc");
  const Problem expected(*find_op("selective_scan_fwd"), {{"dtype", "f32"},
                                                          {"batch", 2_n},
                                                          {"dim", 8_n},
                                                          {"seqlen", 64_n},
                                                          {"dstate", 16_n},
                                                          {"B", "constant"},
                                                          {"C", "constant"},
                                                          {"delta_bias", false},
                                                          {"delta_softplus", false}});
  CHECK(read.problem.axes() == expected.axes());
  CHECK(names(read.outputs) == std::vector<std::string>{"out"});
  CHECK(value(tensor(read.inputs, "B"), 0) == 1.5441365242004395);
  CHECK(value(tensor(read.inputs, "C"), 4 * 16 + 8) == -0.11147194355726242);
}

TEST_CASE("golden f32, two groups, no z") {
  const CaseRead read = read_golden("m1_fwd_f32_groups2_noz");
  const Problem expected(*find_op("selective_scan_fwd"), {{"dtype", "f32"},
                                                          {"batch", 2_n},
                                                          {"dim", 8_n},
                                                          {"seqlen", 130_n},
                                                          {"dstate", 8_n},
                                                          {"groups", 2_n},
                                                          {"z", false}});
  CHECK(read.problem.axes() == expected.axes());
  CHECK(value(tensor(read.inputs, "B"), ((1 * 2 + 1) * 8 + 4) * 130 + 65) ==
        -0.5953478813171387);  // B[1, 1, 4, 65]
  CHECK(value(tensor(read.outputs, "out"), 0) == -0.3664555549621582);
}

TEST_CASE("golden complex, constant B and C") {
  const CaseRead read = read_golden("m1_fwd_c64_const_bc");
  const Problem expected(*find_op("selective_scan_fwd"), {{"dtype", "f32"},
                                                          {"batch", 2_n},
                                                          {"dim", 4_n},
                                                          {"seqlen", 72_n},
                                                          {"dstate", 8_n},
                                                          {"A", "complex"},
                                                          {"B", "constant"},
                                                          {"C", "constant"}});
  CHECK(read.problem.axes() == expected.axes());
  CHECK(names(read.outputs) == std::vector<std::string>{"out"});
  CHECK(complex_value(tensor(read.inputs, "A"), 2 * 8 + 5) ==
        std::complex(-4.918454647064209, 2.047794818878174));
  const HostTensor& C = tensor(read.inputs, "C");
  CHECK(complex_value(C, last(C)) == std::complex(1.0006399154663086, 0.6059998869895935));
  const HostTensor& out = tensor(read.outputs, "out");
  CHECK(value(out, last(out)) == -0.0034571487922221422);
}

TEST_CASE("golden complex, variable B and C") {
  const CaseRead read = read_golden("m1_fwd_c64_var_bc");
  const Problem expected(
      *find_op("selective_scan_fwd"),
      {{"dtype", "f32"}, {"batch", 2_n}, {"dim", 4_n}, {"seqlen", 72_n}, {"dstate", 8_n}, {"A", "complex"}});
  CHECK(read.problem.axes() == expected.axes());
  CHECK(complex_value(tensor(read.inputs, "B"), (1 * 8 + 4) * 72 + 36) ==
        std::complex(0.1294795721769333, 1.5213360786437988));  // B[1, 0, 4, 36]
  CHECK(complex_value(tensor(read.outputs, "last_state"), (1 * 4 + 2) * 8 + 4) ==
        std::complex(-0.025249307975172997, -0.010360684245824814));  // last_state[1, 2, 4]
  CHECK(value(tensor(read.outputs, "out"), 0) == -0.006448886822909117);
}

TEST_CASE("golden files of the Vision-Mamba fork") {
  struct Expected {
    const char *file, *producer, *method;
    double A_3_5, last_state_1_7_7, out_1_4_32;
  };
  for (const auto& want :
       {Expected{"vim_bilinear", "VisionMamba Python selective_scan_ref (bilinear)", "bilinear",
                 -0.9218266010284424, 0.027199652045965195, -0.2626180648803711},
        Expected{"vim_foh", "VisionMamba Python selective_scan_ref (foh)", "vim_foh", -1.0205706357955933,
                 -0.003999175038188696, -0.5121870636940002}}) {
    CAPTURE(want.file);
    const CaseRead read = read_golden(want.file, want.producer);
    const Problem expected(*find_op("selective_scan_fwd"), {{"method", want.method},
                                                            {"dtype", "f32"},
                                                            {"batch", 2_n},
                                                            {"dim", 8_n},
                                                            {"seqlen", 64_n},
                                                            {"dstate", 8_n}});
    CHECK(read.problem.axes() == expected.axes());
    CHECK(value(tensor(read.inputs, "A"), 3 * 8 + 5) == want.A_3_5);
    CHECK(value(tensor(read.outputs, "last_state"), (1 * 8 + 7) * 8 + 7) == want.last_state_1_7_7);
    CHECK(value(tensor(read.outputs, "out"), (1 * 8 + 4) * 64 + 32) == want.out_1_4_32);
  }
}

TEST_CASE("golden decoding steps, the state an input and an output") {
  for (const char* dtype : {"f32", "bf16"}) {
    const bool f32 = dtype == std::string_view("f32");
    const CaseRead read =
        read_golden(std::string("step_m1_") + dtype, "mamba_ssm 2.3.2.post1 selective_state_update (Triton)");
    const Problem expected(
        *find_op("selective_state_update"),
        {{"form", "mamba1"}, {"dtype", dtype}, {"batch", 3_n}, {"dim", 64_n}, {"dstate", 16_n}});
    CHECK(read.problem.axes() == expected.axes());
    CHECK(names(read.outputs) == std::vector<std::string>{"out", "state"});
    CHECK(value(tensor(read.inputs, "state"), (2 * 64 + 63) * 16 + 15) ==
          (f32 ? -0.35598939657211304 : 0.4359268546104431));
    CHECK(value(tensor(read.outputs, "state"), (1 * 64 + 32) * 16 + 8) ==
          (f32 ? 0.772830069065094 : 1.6344045400619507));
    CHECK(value(tensor(read.inputs, "A"), 3 * 16 + 5) == (f32 ? -1.699604868888855 : -1.0727980136871338));
    if (f32)
      CHECK(value(tensor(read.outputs, "out"), 1 * 64 + 32) == -5.0443854331970215);
    else
      CHECK(bits(tensor(read.outputs, "out"), 1 * 64 + 32) == 0x3fa0);
  }
}

TEST_CASE("golden files of Mamba-2's chunked scan") {
  const char* producer = "mamba_ssm 2.3.2.post1 mamba_chunk_scan_combined (Triton)";
  const std::map<std::string, AxisValue> axes{{"dtype", "f32"},     {"batch", 2_n},          {"nheads", 4_n},
                                              {"headdim", 32_n},    {"dstate", 32_n},        {"groups", 2_n},
                                              {"chunk_size", 64_n}, {"initial_states", true}};
  const auto with = [&](std::map<std::string, AxisValue> changes) {
    changes.insert(axes.begin(), axes.end());
    return changes;
  };
  const CaseRead forward = read_golden("ssd_fwd_f32", producer);
  const Problem wanted(*find_op("ssd_chunk_scan_fwd"), with({{"seqlen", 300_n}, {"final_states", true}}));
  CHECK(forward.problem.axes() == wanted.axes());
  CHECK(forward.arithmetic == Arithmetic{Math::tf32, DType::f32});
  CHECK(value(tensor(forward.inputs, "B"), ((1 * 300 + 150) * 2 + 1) * 32 + 16) == 0.485755056142807);
  CHECK(value(tensor(forward.outputs, "out"), ((1 * 300 + 299) * 4 + 3) * 32 + 31) == -0.030706649646162987);
  const HostTensor& final_states = tensor(forward.outputs, "final_states");
  CHECK(value(final_states, last(final_states)) == 0.22202716767787933);

  const CaseRead backward = read_golden("ssd_bwd_f32", producer);
  CHECK(backward.problem.axes() == Problem(*find_op("ssd_chunk_scan_bwd"), with({{"seqlen", 200_n}})).axes());
  CHECK(backward.arithmetic == Arithmetic{Math::tf32, DType::f32});
  CHECK(value(tensor(backward.outputs, "ddt"), 100 * 4 + 2) == -5.049709320068359);
  CHECK(value(tensor(backward.outputs, "dB"), ((1 * 200 + 199) * 2 + 1) * 32 + 31) == 0.5955104827880859);

  const CaseRead halves = read_golden("ssd_fwd_bf16", producer);
  CHECK(halves.arithmetic == Arithmetic{Math::bf16, DType::bf16});
  CHECK(halves.problem.size("chunk_size") == 256);
  CHECK(bits(tensor(halves.outputs, "out"), last(tensor(halves.outputs, "out"))) == 48513);
}

TEST_CASE("golden files of Mamba-3, outputs in dtypes of their own") {
  const std::string producer = "mamba_ssm 2.3.2.post1 @ e9594ce ";
  const CaseRead packed =
      read_golden("m3_siso_fwd_f32_varlen",
                  producer + "mamba3_siso_fwd/_bwd kernels on f32 (Triton, num_stages=1 num_warps=4)");
  const Problem wanted(*find_op("mamba3_siso_fwd"), {{"dtype", "f32"},
                                                     {"batch", 1_n},
                                                     {"seqlen", 150_n},
                                                     {"nheads", 2_n},
                                                     {"headdim", 32_n},
                                                     {"dstate", 32_n},
                                                     {"rope_angles", 8_n},
                                                     {"chunk_size", 32_n},
                                                     {"initial_states", true},
                                                     {"final_states", true},
                                                     {"cu_seqlens", true},
                                                     {"sequences", 4_n}});
  CHECK(packed.problem.axes() == wanted.axes());
  CHECK(packed.arithmetic == Arithmetic{Math::tf32, DType::f32});
  CHECK(value(tensor(packed.inputs, "K"), 75 * 32 + 16) == -0.6313813924789429);
  CHECK(static_cast<const std::int32_t*>(tensor(packed.inputs, "cu_seqlens").buffer.data())[3] == 98);
  CHECK(value(tensor(packed.outputs, "out"), last(tensor(packed.outputs, "out"))) == 0.6698573231697083);
  CHECK(value(tensor(packed.outputs, "Final_Angle_State"), (3 * 2 + 1) * 8 + 7) == 1.4353944063186646);

  const CaseRead mimo = read_golden("m3_mimo_fwd_bf16", producer + "mamba3_mimo (TileLang)");
  CHECK(mimo.problem.size("mimo_rank") == 4);
  CHECK(mimo.problem.choice("rotary_pairing") == "halves");
  CHECK(mimo.problem.flag("out_reduce"));
  CHECK_FALSE(mimo.problem.flag("outproj_norm"));
  CHECK(bits(tensor(mimo.inputs, "Q"), ((45 * 4 + 3) * 1 + 0) * 32 + 16) == 0x3ee0);
  CHECK(value(tensor(mimo.inputs, "Angles"), (45 * 2 + 1) * 8 + 4) == -0.15589749813079834);
  CHECK(tensor(mimo.outputs, "Final_Angle_State").spec.dtype == DType::f32);
  const HostTensor& k = tensor(mimo.outputs, "Final_K_State");  // f32 as ssmbench has it
  REQUIRE(k.spec.dtype == DType::bf16);
  CHECK(bits(k, last(k)) == 0x3f55);

  const CaseRead step =
      read_golden("m3_step_bf16", producer + "mamba3_siso_step (Triton, num_stages=1 num_warps=4)");
  CHECK(step.problem.choice("form") == "siso");
  CHECK(value(tensor(step.inputs, "SSM_State"), last(tensor(step.inputs, "SSM_State"))) ==
        -0.519580066204071);
  CHECK(value(tensor(step.outputs, "SSM_State"), ((1 * 4 + 2) * 64 + 32) * 32 + 16) == -0.558709442615509);
  REQUIRE(tensor(step.outputs, "V_State").spec.dtype == DType::bf16);
  CHECK(bits(tensor(step.outputs, "V_State"), last(tensor(step.outputs, "V_State"))) == 0x400c);
}
