/* Calls that were made, as numbers: which expected kind each is of, or which other one.
 *
 * Knows expected calls; knows no alignment. Calls that agree equally with everything that is expected are of one kind.
 */

typedef struct {
    int count, kinds;    /* visits; kinds, the expected ones before all others */
    int *kind, *wanted;  /* by visit, -1 if its name is not expected; the same, but -1 too if its kind is not expected */
    int *code, *node;    /* by kind: its name, -1 where nobody made such a call; by other kind: its arguments */
    int *table, room;    /* open hash of the other kinds */
    int equal, recorded; /* whether all calls are the expected ones; whether all arguments were recorded */
    Store store;
    void *block; /* that all numbers lie in */
} Run;

static void free_run(Run *run)
{
    free_store(&run->store);
    PyMem_Free(run->block);
}

static int allot_run(Run *run, const Calls *calls, Py_ssize_t count)
{
    int expected = (int)calls->kinds.made;
    for (run->room = 8; run->room < 2 * count; run->room *= 2)
        ;
    run->block = PyMem_Malloc(((size_t)run->room + 4 * (size_t)count + 2 * (size_t)expected + 1) * sizeof(int));
    if (run->block == NULL)
        return -1;
    run->count = (int)count;
    run->kinds = expected;
    run->table = run->block;
    run->kind = run->table + run->room;
    run->wanted = run->kind + count;
    run->code = run->wanted + count;
    run->node = run->code + expected + count;
    memset(run->table, 0xFF, (size_t)run->room * sizeof(int));
    memset(run->code, 0xFF, (size_t)expected * sizeof(int));
    run->store.keys = calls->store.keys;
    run->store.scalars = calls->store.scalars;
    return 0;
}

static int other_kind(Run *run, int code, int node)
{
    int place = (int)(hash_of(&run->store, code, node) & (uint64_t)(run->room - 1));
    for (; run->table[place] >= 0; place = (place + 1) & (run->room - 1)) {
        int kind = run->table[place];
        if (run->code[kind] == code && (node == ANY || equal_values(&run->store, run->node[kind], &run->store, node, 1)))
            return kind;
    }
    run->code[run->kinds] = code;
    run->node[run->kinds] = node;
    return run->table[place] = run->kinds++;
}

static void number_call(Run *run, const Calls *calls, int place, int code, int node)
{
    int wanted = calls->table[place_of(calls, &run->store, code, node)];
    run->wanted[place] = wanted;
    if (wanted < 0) {
        run->kind[place] = other_kind(run, code, node);
        return;
    }
    run->kind[place] = wanted;
    run->code[wanted] = code;
}

/* Runs mostly keep to the order that is expected: whether this is the call that is expected next, as it was written. */
static int is_next(const Calls *calls, int next, PyObject *name, PyObject *own)
{
    return next < calls->kinds.count && same_text(name, PyTuple_GET_ITEM(calls->names, next)) &&
           calls->node[calls->kinds.kind[next]] != ANY && same_value(PyTuple_GET_ITEM(calls->arguments, next), own, 0);
}

/* 0; -1 if the calls are not plain, or did not record what is compared. After a difference that settles it, `all_or_nothing`,
 * they are only looked at for that. */
static int read_run(Run *run, const Calls *calls, PyObject *visits, const Layout *layout, int all_or_nothing)
{
    run->equal = run->count == calls->kinds.count;
    run->recorded = 1;
    for (int place = 0, next = 0; place < run->count; place++) {
        PyObject *visit = PyTuple_GET_ITEM(visits, place);
        PyObject *name = Py_IS_TYPE(visit, layout->type) ? slot_of(visit, layout->at[NAME]) : NULL;
        PyObject *own = name == NULL ? NULL : slot_of(visit, layout->at[ARGUMENTS]);
        if (name == NULL || own == NULL || !PyUnicode_CheckExact(name))
            return -1;
        run->kind[place] = run->wanted[place] = -1;
        run->recorded &= own != calls->unrecorded;
        if (all_or_nothing && !run->equal) {
            if (!run->recorded)
                return -1;
            continue;
        }
        if (is_next(calls, next, name, own) || is_next(calls, ++next, name, own)) {
            int kind = calls->kinds.kind[next++];
            run->kind[place] = run->wanted[place] = kind;
            run->code[kind] = calls->code[kind];
            run->equal = run->equal && kind == calls->kinds.kind[place];
            continue;
        }
        int code = number_of(calls->codes, name), node = ANY;
        if (code >= 0 && calls->asks[code]) {
            node = own == calls->unrecorded ? ODD : read_arguments(&run->store, own);
            if (node == ODD)
                return -1;
        }
        if (code >= 0)
            number_call(run, calls, place, code, node);
        run->equal = run->equal && run->wanted[place] == calls->kinds.kind[place];
    }
    return all_or_nothing && !run->recorded ? -1 : 0;
}
