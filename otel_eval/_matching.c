/* What calls weigh against expected ones, where that can be told without pairing them.
 *
 * Knows names, times and rows of bits. Refuses to know: concurrency and groups beyond whether there are any, explanations,
 * references. Calls that are not plain are left to Python, whose answer counts. So both ways give equal results, and this
 * is only a shortcut. It runs nobody's Python code while it looks at calls, and nothing recurses.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

static PyObject *slot_names[4];

#include "c/matching/visits.h"
#include "c/matching/names.h"
#include "c/matching/weighing.h"

static PyMethodDef functions[] = {
    {"names", prepare_names, METH_O, "names(names): expected names, prepared; None if they are no tuple of strings."},
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
    names_type = (PyTypeObject *)PyType_FromSpec(&names_spec);
    return names_type == NULL ? NULL : PyModule_Create(&definition);
}
