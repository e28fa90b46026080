/* Reading spans in OTLP's protobuf bytes, the way nearly every encoder writes them.
 *
 * It reads where a span keeps its ids, name, kind, times, status and attributes, the four plain
 * kinds of value, and how a request nests. Anything unusual is left to the Python decoder: a field
 * that OTLP does not have, one of another wire type, a key or a value that is there twice, a number
 * longer than it need be. So both ways give equal results.
 *
 * Hostile bytes: every read is bounds-checked, nothing recurses by what the bytes say, nothing is
 * allocated by a length that the bytes themselves do not back. Holds no reference across calls but
 * to the Python functions it was given and to at most SLOTS sets of wanted keys. Needs the
 * interpreter's lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

static PyObject *pure_view, *pure_events, *pure_decode, *decode_error;
static PyObject *str_attributes, *str_status_code, *str_status_message, *str_raw_keys,
    *str_raw_prefixes;
static PyObject *str_raw_presence, *str_short, *str_named, *str_sizeof;

#include "c/outcome.h"
#include "c/wire.h"
#include "c/wanted.h"
#include "c/attributes.h"
#include "c/view.h"
#include "c/fingerprint.h"
#include "c/mapping.h"
#include "c/view_type.h"
#include "c/framing.h"
#include "c/sizes.h"
#include "c/buffer.h"
#include "c/splitting.h"

static PyObject *configure(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "configure(view, events, decode, error)");
        return NULL;
    }
    Py_XSETREF(pure_view, Py_NewRef(args[0]));
    Py_XSETREF(pure_events, Py_NewRef(args[1]));
    Py_XSETREF(pure_decode, Py_NewRef(args[2]));
    Py_XSETREF(decode_error, Py_NewRef(args[3]));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"configure", (PyCFunction)(void (*)(void))configure, METH_FASTCALL,
     "configure(view, events, decode, error): what to ask about events, and about anything "
     "unusual."},
    {"view", make_view, METH_O, "view(payload): the span, readable."},
    {"frame", (PyCFunction)(void (*)(void))frame, METH_FASTCALL,
     "frame(body, resource_scope, max_attributes): (resource_scope, spans) of each scope, or None "
     "if the body is unusual, or a span, an event or\n"
     "a link in it has more attributes than that."},
    {"wanted_of", (PyCFunction)(void (*)(void))wanted_of, METH_FASTCALL,
     "wanted_of(attributes, wanted): those of the attributes that are wanted; None if one of them "
     "is no text, boolean or number."},
    {"fingerprint_of", (PyCFunction)(void (*)(void))fingerprint_of, METH_FASTCALL,
     "fingerprint_of(attributes, wanted, name): a key that is equal only where the wanted "
     "attributes are, or None."},
    {"size_of_attributes", size_of_attributes, METH_O,
     "size_of_attributes(attributes): the bytes that they take, or None if one has elements."},
    {"fields_size", fields_size, METH_VARARGS,
     "fields_size(body, levels, limit): what the fields of a request cost, or None if it is "
     "unusual."},
    {"content_size", content_size, METH_VARARGS,
     "content_size(body, costs, nested): what the bytes cost, and what may be lists or maps."},
    {"split", split, METH_VARARGS,
     "split(body, count, id_field): as many requests by the trace ids of their members, b\"\" "
     "where there is none; or None if the\n"
     "body cannot be read."},
    {NULL, NULL, 0, NULL},
};

static int intern_names(void)
{
    struct {
        PyObject **variable;
        const char *name;
    } names[] = {
        {&str_attributes, "attributes"},
        {&str_status_code, "status_code"},
        {&str_status_message, "status_message"},
        {&str_raw_keys, "raw_keys"},
        {&str_raw_prefixes, "raw_prefixes"},
        {&str_raw_presence, "raw_presence"},
        {&str_short, "short"},
        {&str_named, "named"},
        {&str_sizeof, "__sizeof__"},
    };
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if ((*names[index].variable = PyUnicode_InternFromString(names[index].name)) == NULL)
            return -1;
    return 0;
}

/* The state above belongs to the process: another interpreter of it does without the extension. A
 * second import into the same interpreter finds everything in place. */
static int prepare(PyObject *Py_UNUSED(module))
{
    static PyInterpreterState *owner;
    if (owner != NULL && owner != PyInterpreterState_Get()) {
        PyErr_SetString(PyExc_ImportError,
                        "otel_eval._native was loaded by another interpreter of the process");
        return -1;
    }
    if (view_type == NULL) {
        if (intern_names() < 0)
            return -1;
        view_type = (PyTypeObject *)PyType_FromSpec(&view_spec);
    }
    owner = view_type == NULL ? NULL : PyInterpreterState_Get();
    return view_type == NULL ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, prepare},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._native",
    .m_doc = "A shortcut for reading spans in OTLP's protobuf bytes.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
