/* The walks over every span of a trace that a closed trace begins with.
 *
 * Knows: ids, parent links, and how a view, an envelope and a scope's reader are asked. Refuses to know: bytes on any wire
 * (but for the flags at the end of a span), attributes, tables. Links that run in a circle, ids of another length than eight
 * bytes, a view without a fingerprint: then Python is asked instead, whose answer counts. So both ways give equal results, and
 * this is only a shortcut.
 *
 * Nothing recurses, and the hash of an id is Python's own keyed one, so that nobody can choose ids that collide.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

static PyObject *str_scope_name, *str_view, *str_dropped, *str_marks, *str_wanted, *str_named, *str_read, *str_fingerprint;
static PyObject *str_kind, *str_name, *str_call, *str_table, *str_start, *str_end, *str_hex;

#define ID_SIZE 8

#include "c/traces/links.h"
#include "c/traces/asking.h"
#include "c/traces/lines.h"
#include "c/traces/maker.h"
#include "c/traces/push.h"
#include "c/traces/plain.h"

static PyMethodDef functions[] = {
    {"plant", plant, METH_O, "plant(frames): (ids, parents, sizes, tops, missing), or None if a link is unusual."},
    {"recognise", (PyCFunction)(void (*)(void))recognise, METH_FASTCALL,
     "recognise(frames, ids, of_scope, dropped): (views, envelopes, readings, kinds, ids of those that are dropped)."},
    {"link", (PyCFunction)(void (*)(void))link_kinds, METH_FASTCALL,
     "link(kinds, parents, other, agent, model): (above, agent_above, agents, models, tools)."},
    {"plain", (PyCFunction)(void (*)(void))plain_run, METH_FASTCALL,
     "plain(frames, of_scope, dropped, readers, other, agent, model, facts, make, unrecorded): (what `facts` says of the\n"
     "agent's view and reading, view, envelope, id, members, calls, number of model calls) of a trace that is one tree\n"
     "around one agent whose calls did not fail; None of any other."},
    {"push", push_spans, METH_VARARGS,
     "push(slots, spans, at, traces, now, soon, most, most_bytes, overhead): (place of the first span that needs a closer look,\n"
     "number added, bytes added)."},
    {"maker", (PyCFunction)(void (*)(void))make_maker, METH_FASTCALL,
     "maker(cls, names): a function that makes instances from the values of these slots, in order."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "otel_eval._forest",
    .m_doc = "A shortcut for the walks over every span of a trace.",
    .m_size = -1,
    .m_methods = functions,
};

static int intern_names(void)
{
    struct {
        PyObject **held;
        const char *name;
    } names[] = {
        {&str_scope_name, "scope_name"}, {&str_view, "view"},   {&str_dropped, "dropped"}, {&str_marks, "marks"},
        {&str_wanted, "wanted"},         {&str_named, "named"}, {&str_read, "read"},       {&str_fingerprint, "fingerprint"},
        {&str_kind, "kind"},             {&str_name, "name"},   {&str_call, "call"},       {&str_table, "table"},
        {&str_start, "start_ns"},        {&str_end, "end_ns"}, {&str_hex, "hex"},
    };
    for (size_t number = 0; number < sizeof names / sizeof *names; number++)
        if ((*names[number].held = PyUnicode_InternFromString(names[number].name)) == NULL)
            return -1;
    return 0;
}

PyMODINIT_FUNC PyInit__forest(void)
{
    if (intern_names() < 0)
        return NULL;
    maker_type = (PyTypeObject *)PyType_FromSpec(&maker_spec);
    return maker_type == NULL ? NULL : PyModule_Create(&definition);
}
