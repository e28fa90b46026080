/* Span events in OTLP's protobuf bytes.
 *
 * Knows: plain attributes, and plain dicts and lists as JSON. Refuses to know: numbers of more than 64 bits, texts that are
 * not Unicode, classes of somebody's own: then Python is asked instead, whose answer counts. So both ways give equal bytes,
 * and this is only a shortcut.
 *
 * Recursion has a limit, and no Python runs while something is walked.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "c/writing/outcome.h"
#include "c/writing/buffer.h"
#include "c/writing/pairs.h"
#include "c/events/json.h"
#include "c/events/pairs.h"

static PyObject *finished(int done, const Buffer *head, const Buffer *content)
{
    if (done == FAILED)
        return NULL;
    if (done == ODD)
        Py_RETURN_NONE;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head->size + content->size));
    if (made != NULL) {
        memcpy(PyBytes_AS_STRING(made), head->at, head->size);
        memcpy(PyBytes_AS_STRING(made) + head->size, content->at, content->size);
    }
    return made;
}

static PyObject *event(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *first, *second;
    Py_ssize_t first_size, second_size, at = 0;
    PyObject *attributes, *key, *value;
    if (!PyArg_ParseTuple(args, "y#y#O!:event", &first, &first_size, &second, &second_size, &PyDict_Type, &attributes))
        return NULL;
    Buffer head, content;
    begin(&head);
    begin(&content);
    int done = put(&content, first, (size_t)first_size);
    if (done == DONE)
        done = put(&content, second, (size_t)second_size);
    while (done == DONE && PyDict_Next(attributes, &at, &key, &value))
        done = put_attribute(&content, 0x1A, key, value, put_json);
    if (done == DONE)
        done = PUT(&head, "\x5A") == FAILED ? FAILED : put_varint(&head, content.size);
    PyObject *made = finished(done, &head, &content);
    end(&content);
    end(&head);
    return made;
}

static PyMethodDef functions[] = {
    {"event", event, METH_VARARGS,
     "event(head, more, attributes): the field of a span that holds an event of these bytes and attributes, or None if one of\n"
     "them is unusual."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._events",
    .m_doc = "A shortcut for writing span events in OTLP's protobuf bytes.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__events(void)
{
    return PyModule_Create(&definition);
}
