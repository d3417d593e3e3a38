/* The plugin that `--plugin FILE.py` opens: runs the user's Python in this process. It loads the libpython of
 * the interpreter that `python3` is (of $VIRTUAL_ENV, else on PATH) when it is opened, and needs none to be
 * built: what it calls there is in every version. python/ssmbench/_bridge.py beside it does the rest: it hands
 * over functions for all that a plugin does, which take the interpreter's lock themselves. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>

#include "ssmbench_plugin.h"

/* Filled by _bridge.py; texts are NULL or stay valid until the next call. */
static struct {
  const char* (*open)(const char* file);
  const ssmbench_plugin* (*describe)(void);
  const char* (*unsupported)(int32_t index, const ssmbench_problem* problem);
  const char* (*bind)(int32_t index, const ssmbench_problem* problem, void** handle);
  const char* (*launch)(void* handle, void* stream);
  void (*release)(void* handle);
} python;

static char message[4096 + 256];

static const char* error(const char* what, const char* detail) {
  snprintf(message, sizeof message, what, detail);
  return message;
}

/* What the interpreter is asked, a line each: its own path, its version, and the library that it is. */
static const char question[] =
    "import os, sys, sysconfig as s\n"
    "v = s.get_config_vars()\n"
    "x = \"libpython%s%s.so\" % (v[\"py_version_short\"], getattr(sys, \"abiflags\", \"\"))\n"
    "names = [v.get(\"INSTSONAME\") or \"\", x + \".1.0\", x + \".1\", x]\n"
    "files = [os.path.join(f or \"\", n) for f in (v.get(\"LIBDIR\"), v.get(\"LIBPL\")) for n in names]\n"
    "found = [f for f in files if \".so\" in f and os.path.isfile(f)]\n"
    "print(sys.executable)\n"
    "print(\"%d.%d\" % sys.version_info[:2])\n"
    "print(found[0] if found else \"\")\n";

typedef struct {
  char program[PATH_MAX], version[16], library[PATH_MAX];
} interpreter;

static int read_line(FILE* file, char* line, size_t size) {
  if (fgets(line, (int)size, file) == NULL) return 0;
  line[strcspn(line, "\n")] = '\0';
  return 1;
}

static const char* find(interpreter* found) {
  /* In the environment, so that no path needs quotes. */
  setenv("SSMBENCH_PYTHON_QUESTION", question, 1);
  FILE* answer = popen(
      "if [ -n \"$VIRTUAL_ENV\" ]; then p=$VIRTUAL_ENV/bin/python3; else p=python3; fi\n"
      "exec \"$p\" -c \"$SSMBENCH_PYTHON_QUESTION\" 2>/dev/null",
      "r");
  const int is_read = answer != NULL && read_line(answer, found->program, sizeof found->program) &&
                      read_line(answer, found->version, sizeof found->version) &&
                      read_line(answer, found->library, sizeof found->library);
  if (answer != NULL) pclose(answer);
  unsetenv("SSMBENCH_PYTHON_QUESTION");
  if (!is_read) return "no python3 answers, neither in $VIRTUAL_ENV nor on PATH";
  int major = 0, minor = 0;
  if (sscanf(found->version, "%d.%d", &major, &minor) != 2 || major != 3 || minor < 10)
    return error("needs Python 3.10 or later; %s is older", found->program);
  if (found->library[0] == '\0')
    return error(
        "%s has no shared libpython (its package has the name libpython3.x or python3-dev; "
        "a Python of one's own is configured with --enable-shared)",
        found->program);
  return NULL;
}

/* Starts the interpreter as the program `found` would be, so that it finds its virtual environment, and
 * leaves signals alone. NULL, or what went wrong. */
static const char* start(void* library, const interpreter* found) {
  /* Python 3.14 and later: PEP 741. */
  void* (*create)(void) = (void* (*)(void))dlsym(library, "PyInitConfig_Create");
  if (create != NULL) {
    int (*set_string)(void*, const char*, const char*) =
        (int (*)(void*, const char*, const char*))dlsym(library, "PyInitConfig_SetStr");
    int (*set_integer)(void*, const char*, int64_t) =
        (int (*)(void*, const char*, int64_t))dlsym(library, "PyInitConfig_SetInt");
    int (*initialize)(void*) = (int (*)(void*))dlsym(library, "Py_InitializeFromInitConfig");
    void* config = create();
    if (config == NULL || set_string == NULL || set_integer == NULL || initialize == NULL ||
        set_string(config, "program_name", found->program) < 0 ||
        /* Which starts isolated, without PYTHONPATH and the user's packages. */
        set_integer(config, "isolated", 0) < 0 || set_integer(config, "use_environment", 1) < 0 ||
        set_integer(config, "user_site_directory", 1) < 0 || initialize(config) < 0)
      return error("%s cannot be started in this process", found->program);
    return NULL;
  }
  void (*set_program)(const wchar_t*) = (void (*)(const wchar_t*))dlsym(library, "Py_SetProgramName");
  wchar_t* (*decode)(const char*, size_t*) =
      (wchar_t * (*)(const char*, size_t*)) dlsym(library, "Py_DecodeLocale");
  void (*initialize)(int) = (void (*)(int))dlsym(library, "Py_InitializeEx");
  wchar_t* program = decode == NULL ? NULL : decode(found->program, NULL);
  if (program == NULL || set_program == NULL || initialize == NULL)
    return error("%s cannot be started in this process", found->program);
  set_program(program); /* which has to stay */
  initialize(0);
  return NULL;
}

/* The folder beside this library that has ssmbench/ in it. */
static const char* own_folder(char* folder, size_t size) {
  Dl_info here;
  if (dladdr((void*)&python, &here) == 0 || here.dli_fname == NULL) return "does not find its own folder";
  const char* slash = strrchr(here.dli_fname, '/');
  const int length = slash == NULL ? 0 : (int)(slash - here.dli_fname);
  snprintf(folder, size, "%.*s/python", length, here.dli_fname);
  char first[PATH_MAX + 32];
  snprintf(first, sizeof first, "%s/ssmbench/_bridge.py", folder);
  return access(first, R_OK) == 0 ? NULL : error("needs %s, which was not installed", first);
}

static const char* embed(void) {
  interpreter found;
  const char* wrong = find(&found);
  if (wrong != NULL) return wrong;
  char folder[PATH_MAX];
  wrong = own_folder(folder, sizeof folder);
  if (wrong != NULL) return wrong;
  /* Global, since extension modules are not linked with it. */
  void* library = dlopen(found.library, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) return error("libpython does not load: %s", dlerror());
  int (*run)(const char*) = (int (*)(const char*))dlsym(library, "PyRun_SimpleString");
  void* (*unlock)(void) = (void* (*)(void))dlsym(library, "PyEval_SaveThread");
  if (run == NULL || unlock == NULL) return error("%s is no libpython", found.library);
  setenv("SSMBENCH_PYTHON_FOLDER", folder, 1); /* before Python copies the environment */
  wrong = start(library, &found);
  if (wrong != NULL) return wrong;
  char program[512];
  snprintf(program, sizeof program,
           "import os, sys\n"
           "sys.path.insert(0, os.environ.pop('SSMBENCH_PYTHON_FOLDER'))\n"
           "kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True\n"
           "import ssmbench._bridge\n"
           "sys.dont_write_bytecode = kept\n"
           "ssmbench._bridge.connect(%zu)\n",
           (size_t)(uintptr_t)&python);
  const int failed = run(program);
  unlock();
  return failed ? error("%s cannot run ssmbench's own Python files", found.program) : NULL;
}

const char* ssmbench_plugin_open(const char* argument) {
  if (python.open == NULL) {
    const char* wrong = embed();
    if (wrong != NULL) return wrong;
  }
  return python.open(argument);
}

const ssmbench_plugin* ssmbench_plugin_describe(void) {
  return python.describe();
}

const char* ssmbench_plugin_unsupported(int32_t index, const ssmbench_problem* problem) {
  return python.unsupported(index, problem);
}

/* Python allocates by itself. */
int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  (void)index;
  (void)problem;
  return 0;
}

const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem, void* workspace,
                                 void** handle) {
  (void)workspace;
  return python.bind(index, problem, handle);
}

const char* ssmbench_plugin_launch(void* handle, void* stream) {
  return python.launch(handle, stream);
}

void ssmbench_plugin_release(void* handle) {
  python.release(handle);
}
