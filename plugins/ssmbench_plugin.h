/* ssmbench's interface for kernels that are built elsewhere: a shared library that exports the functions
 * declared in this file, in C or in any language that can export C functions. `ssmbench run CONFIG --plugin
 * LIB.so` then lists, verifies and times its implementations like the built-in ones. This header needs
 * nothing but a C99 or C++ compiler; plugins/README.md is the guide, example_c/ and example_cuda/ are
 * complete.
 *
 * Everything that a function is given belongs to ssmbench. Pointers to problems, and what they point to, stay
 * valid while the function runs, and those that bind is given until release. Strings that a function returns
 * belong to the plugin and stay valid until the next call into it. All strings are UTF-8 and end in NUL.
 * Functions are called from one thread at a time. */
#ifndef SSMBENCH_PLUGIN_H
#define SSMBENCH_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Version of this header. It grows whenever a structure or the meaning of a field changes; a plugin that was
 * built with another one is refused. */
#define SSMBENCH_PLUGIN_ABI_VERSION 2

/* Storage types. bf16 and f16 are their 16 bits, c64 is a pair of f32 (real, imaginary), e4m3 is the 8-bit
 * float without infinities. */
enum {
  SSMBENCH_F32 = 0,
  SSMBENCH_F64 = 1,
  SSMBENCH_F16 = 2,
  SSMBENCH_BF16 = 3,
  SSMBENCH_C64 = 4,
  SSMBENCH_I32 = 5,
  SSMBENCH_I64 = 6,
  SSMBENCH_I16 = 7,
  SSMBENCH_I8 = 8,
  SSMBENCH_E4M3 = 9
};

/* Where tensors and workspaces lie. */
enum { SSMBENCH_CPU = 0, SSMBENCH_CUDA = 1 };

/* What is computed in; tolerances follow from it. TF32, F16 and BF16: operands of matrix products are rounded
 * to it and the rest stays f32; in operations without matrix products, everything is rounded to it. */
enum {
  SSMBENCH_MATH_F32 = 0,
  SSMBENCH_MATH_F64 = 1,
  SSMBENCH_MATH_TF32 = 2,
  SSMBENCH_MATH_F16 = 3,
  SSMBENCH_MATH_BF16 = 4
};

/* What a tensor is for. An INPUT | OUTPUT is updated in place. */
enum { SSMBENCH_INPUT = 1, SSMBENCH_OUTPUT = 2 };

typedef struct ssmbench_tensor {
  const char* name;       /* as the operation's definition has it: "u", "delta", "A", ... */
  void* data;             /* in the device's memory; NULL where there are no values yet */
  const int64_t* shape;   /* rank extents, in the definition's order of axes */
  const int64_t* strides; /* in elements, in the same order: the layout is in them alone */
  int32_t rank;
  int32_t dtype;
  int32_t role;
  int32_t reserved;
} ssmbench_tensor;

/* One axis of a case as configs have it: "batch", "seqlen", "method", "layout", "delta_softplus", "dt_limit".
 */
typedef struct ssmbench_attribute {
  const char* name;
  const char* text; /* as a word, whatever its kind: "16", "true", "zoh", "0.001..0.1" */
  int64_t integer;  /* of sizes; flags: 1 or 0; others: 0 */
  double low, high; /* of intervals, either may be infinite; others: 0 */
} ssmbench_attribute;

/* A case: optional tensors that it does not have are not listed. */
typedef struct ssmbench_problem {
  const char* op;                       /* "selective_scan_fwd"; `ssmbench list ops` */
  const ssmbench_tensor* tensors;       /* inputs and outputs; no two have the same name */
  const ssmbench_attribute* attributes; /* every axis of the operation */
  int32_t tensor_count;
  int32_t attribute_count;
  int32_t dtype; /* of the case: what sequences are stored in */
  int32_t reserved;
} ssmbench_problem;

/* What an implementation says of itself. Fields left 0 claim least: CPU, f32 arithmetic, not deterministic.
 */
typedef struct ssmbench_implementation {
  const char* name;    /* letters, digits, '-', '_' and '.'; --impl selects by it */
  const char* op;      /* the operation that it computes */
  const char* summary; /* one line */
  int32_t device;
  int32_t deterministic;  /* 1: equal inputs give equal bits, always */
  int32_t math[3];        /* in cases of dtype f32, f16 and bf16, in this order */
  int32_t state_dtype[3]; /* what states between chunks are stored in, in the same order */
} ssmbench_implementation;

typedef struct ssmbench_plugin {
  int32_t abi_version; /* SSMBENCH_PLUGIN_ABI_VERSION; the first field in every version */
  int32_t implementation_count;
  const ssmbench_implementation* implementations; /* numbered from first_index on: `index` below */
  int32_t first_index; /* 0, unless the library is opened more than once and describes others each time */
} ssmbench_plugin;

#ifdef __cplusplus
#define SSMBENCH_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define SSMBENCH_EXPORT __attribute__((visibility("default")))
#endif

/* Optional. Called first, with ARGUMENT of `--plugin LIB.so=ARGUMENT`, or "" where there is none. Returns
 * NULL, or why the plugin cannot be used, which ends the program with that line. A library that is named
 * several times with different arguments is opened, and described, as often. */
SSMBENCH_EXPORT const char* ssmbench_plugin_open(const char* argument);

/* Called once after each open. What it returns stays valid. */
SSMBENCH_EXPORT const ssmbench_plugin* ssmbench_plugin_describe(void);

/* Why the implementation cannot do the problem, in a few words ("has f32 only"); NULL when it can. Tensors
 * have no data here. */
SSMBENCH_EXPORT const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem);

/* Bytes of scratch memory that one launch needs, in the device's memory; 0 for none. What is in it is
 * arbitrary before each launch. Tensors have no data here. */
SSMBENCH_EXPORT int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem);

/* Gets launches on these tensors ready: looks up arguments, compiles, tunes, allocates. Is not timed, and may
 * wait for the device; CUDA: the current device is the one that the tensors are on. The inputs hold values,
 * but launches will find others at the same addresses, so that nothing computed from them may be kept.
 * Outputs and workspace are overwritten after it. Sets *handle, which is NULL before, to what launch and
 * release are to be given. Returns NULL, or what went wrong, in which case there is nothing to release. */
SSMBENCH_EXPORT const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem,
                                                 void* workspace, void** handle);

/* Computes all outputs from the inputs, of the tensors that bind was given. CUDA: enqueues the work on
 * `stream`, a cudaStream_t, and returns without waiting for it; the current device is the stream's. CPU:
 * `stream` is NULL, and outputs are there on return. Launched many times on the same handle, with other
 * values in the tensors each time. Returns NULL, or what went wrong. */
SSMBENCH_EXPORT const char* ssmbench_plugin_launch(void* handle, void* stream);

/* Called once for each handle, after its last launch is done. */
SSMBENCH_EXPORT void ssmbench_plugin_release(void* handle);

/* The tensor of that name; NULL where the case does not have it. */
static inline const ssmbench_tensor* ssmbench_find(const ssmbench_problem* problem, const char* name) {
  for (int32_t i = 0; i < problem->tensor_count; ++i)
    if (strcmp(problem->tensors[i].name, name) == 0) return &problem->tensors[i];
  return NULL;
}

/* Its data; NULL where the case does not have it. */
static inline void* ssmbench_data(const ssmbench_problem* problem, const char* name) {
  const ssmbench_tensor* tensor = ssmbench_find(problem, name);
  return tensor == NULL ? NULL : tensor->data;
}

/* The attribute of that name; NULL where the operation does not have it. */
static inline const ssmbench_attribute* ssmbench_attribute_of(const ssmbench_problem* problem,
                                                              const char* name) {
  for (int32_t i = 0; i < problem->attribute_count; ++i)
    if (strcmp(problem->attributes[i].name, name) == 0) return &problem->attributes[i];
  return NULL;
}

/* The value of a size or a flag; 0 where the operation does not have it. */
static inline int64_t ssmbench_integer(const ssmbench_problem* problem, const char* name) {
  const ssmbench_attribute* attribute = ssmbench_attribute_of(problem, name);
  return attribute == NULL ? 0 : attribute->integer;
}

/* Whether the attribute is there and has that value, written as configs have it. */
static inline int ssmbench_is(const ssmbench_problem* problem, const char* name, const char* text) {
  const ssmbench_attribute* attribute = ssmbench_attribute_of(problem, name);
  return attribute != NULL && strcmp(attribute->text, text) == 0;
}

#endif
