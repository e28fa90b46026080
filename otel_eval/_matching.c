/* What calls weigh against expected ones, where that can be told without pairing them.
 *
 * Knows names, times, JSON values and rows of bits. Refuses to know: concurrency and groups beyond whether there are any,
 * results, explanations, references. Calls that are not plain are left to Python, whose answer counts. So both ways give
 * equal results, and this is only a shortcut. It runs nobody's Python code while it looks at calls; what recurses goes as
 * deep as `DEEPEST`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

static PyObject *slot_names[4], *fsum;

#include "c/matching/visits.h"
#include "c/matching/kinds.h"
#include "c/matching/names.h"
#include "c/matching/weighing.h"
#include "c/matching/values.h"
#include "c/matching/agreeing.h"
#include "c/matching/growing.h"
#include "c/matching/gathering.h"
#include "c/matching/ordered.h"
#include "c/matching/assigning.h"
#include "c/matching/calls.h"
#include "c/matching/runs.h"
#include "c/matching/comparing.h"
#include "c/matching/answering.h"
#include "c/matching/pairing.h"
#include "c/matching/scoring.h"
#include "c/matching/types.h"

static PyMethodDef functions[] = {
    {"names", prepare_names, METH_O, "names(names): expected names, prepared; None if they are no tuple of strings."},
    {"calls", prepare_calls, METH_VARARGS,
     "calls(names, arguments, unrecorded, mode, nested, (many pairs, most steps, steps to compare, and for each key)): expected\n"
     "calls, prepared; None if they are not plain."},
    {"scoring", prepare_scoring, METH_VARARGS,
     "scoring(what `names` or `calls` made of an expectation, the expectation, class of runs, class of scores, match, ratio, nested, concurrency, shortcut, strict,\n"
     "threshold): scores runs; None if the classes are not plain."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._matching",
    .m_doc = "A shortcut for scorers that compare calls with expected ones.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__matching(void)
{
    static const char *const names[SLOTS] = {"name", "start_ns", "end_ns", "arguments"};
    for (int slot = 0; slot < SLOTS; slot++)
        if ((slot_names[slot] = PyUnicode_InternFromString(names[slot])) == NULL)
            return NULL;
    PyObject *math = PyImport_ImportModule("math");
    fsum = math == NULL ? NULL : PyObject_GetAttrString(math, "fsum");
    Py_XDECREF(math);
    static const char *const frame[FRAME] = {"incomplete", "calls_unknown", "calls", "value", "passed", "tell"};
    for (int slot = 0; slot < FRAME; slot++)
        if ((frame_names[slot] = PyUnicode_InternFromString(frame[slot])) == NULL)
            return NULL;
    explained = PyUnicode_InternFromString("explained");
    scoring_type = (PyTypeObject *)PyType_FromSpec(&scoring_spec);
    telling_type = (PyTypeObject *)PyType_FromSpec(&telling_spec);
    names_type = (PyTypeObject *)PyType_FromSpec(&names_spec);
    calls_type = (PyTypeObject *)PyType_FromSpec(&calls_spec);
    if (explained == NULL || scoring_type == NULL || telling_type == NULL)
        return NULL;
    return fsum == NULL || names_type == NULL || calls_type == NULL ? NULL : PyModule_Create(&definition);
}
