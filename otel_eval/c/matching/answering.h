/* Answers about calls with their arguments.
 *
 * Knows which runs are plain enough, and where equal calls decide before anything is paired. Answers exactly what Python
 * does, or leaves it to Python: calls that are not plain, side by side, or so many that Python would count its steps.
 */

#define MOST_PAIRS 4000000
#define UNHURRIED 20000 /* pairs: from here on other threads may run meanwhile */

/* Rows and columns that are in no pair and agree, each with the first that does. */
static int find_misplaced(Weighing *this)
{
    const Calls *calls = this->calls;
    int columns = this->run.count, *taken = calloc((size_t)columns + 1, sizeof(int));
    if (taken == NULL)
        return LEFT_TO_PYTHON;
    for (int row = 0; row < calls->kinds.count; row++)
        if (this->column_of[row] >= 0)
            taken[this->column_of[row]] = 1;
    double weight = 0;
    for (int row = 0; this->match != 'a' && weight >= 0 && row < calls->kinds.count; row++) {
        int wanted = calls->kinds.kind[row];
        for (int column = 0; this->column_of[row] < 0 && weight >= 0 && column < columns; column++) {
            int made = this->run.kind[column];
            if (taken[column] || made < 0 || this->run.code[made] != calls->code[wanted] || (weight = weight_of(this, wanted, made)) == 0)
                continue;
            this->misplaced[row] = column;
            taken[column] = 1;
            break;
        }
    }
    free(taken);
    return weight < 0 ? LEFT_TO_PYTHON : TOLD;
}

static int weigh_run(Weighing *this)
{
    const Calls *calls = this->calls;
    this->shortcut = this->shortcut && this->run.recorded;
    if (this->shortcut && this->run.equal)
        return pair_in_place(this);
    if (this->column_of != NULL)
        return weigh_pairs(this) == TOLD ? find_misplaced(this) : LEFT_TO_PYTHON;
    if (this->shortcut && this->match == 'e' && (calls->mode == EXACT || calls->kinds.count != this->run.count))
        return pair_all(this, 0);
    if (this->shortcut && this->match != 'e' && weigh_equals(this) == TOLD)
        return TOLD;
    return weigh_pairs(this);
}

/* The answer: how many pairs, and what they weigh. */
typedef struct {
    Py_ssize_t pairs;
    double weight;
} Told;

/* The weight rounded once, as `fsum` does. 1; -1 on failure. */
static int sum_up(const Weighing *this, Told *told)
{
    *told = (Told){this->paired, this->whole + this->dyadic};
    if (this->rest_count == 0)
        return 1;
    PyObject *all = PyList_New(this->rest_count + 1), *total = NULL;
    for (int at = 0; all != NULL && at <= this->rest_count; at++) {
        PyObject *weight = PyFloat_FromDouble(at ? this->rest[at - 1] : told->weight);
        if (weight == NULL)
            Py_CLEAR(all);
        else
            PyList_SET_ITEM(all, at, weight);
    }
    if (all != NULL)
        total = PyObject_CallOneArg(fsum, all);
    Py_XDECREF(all);
    if (total == NULL)
        return -1;
    told->weight = PyFloat_AsDouble(total);
    Py_DECREF(total);
    return 1;
}

/* The answer; whoever asked frees `rest`. */
static int answer_of(Weighing *this, PyObject *visits, int concurrency)
{
    const Calls *calls = this->calls;
    this->shortcut = this->shortcut && !calls->bare;
    Py_ssize_t count = PyTuple_GET_SIZE(visits);
    Layout layout = layout_of_visits(visits);
    if (layout.at[NAME] < 0 || layout.at[START] < 0 || layout.at[END] < 0 || layout.at[ARGUMENTS] < 0)
        return LEFT_TO_PYTHON;
    if (count > MOST_PAIRS || count * calls->kinds.count > MOST_PAIRS || (this->match != 'a' && calls->nested))
        return LEFT_TO_PYTHON;
    int answer = LEFT_TO_PYTHON, all_or_nothing = this->shortcut && this->match == 'e' && calls->mode == EXACT;
    if (allot_run(&this->run, calls, count) == 0 && read_run(&this->run, calls, visits, &layout, all_or_nothing) == 0 &&
        (this->match == 'a' || !concurrency || follow_one_another(visits, &layout) == 1)) {
        if (count * calls->kinds.count < UNHURRIED)
            answer = weigh_run(this);
        else {
            Py_BEGIN_ALLOW_THREADS;
            answer = weigh_run(this);
            Py_END_ALLOW_THREADS;
        }
    }
    PyErr_Clear(); /* of memory that there is not: Python tells */
    free_run(&this->run);
    return answer;
}

/* 1 if it is told; 0: left to Python; -1 on failure. */
static int weigh_calls(const Calls *calls, PyObject *visits, Py_UCS4 match, int concurrency, int shortcut, Told *told)
{
    Weighing weighing = {.calls = calls, .match = match, .shortcut = shortcut};
    int found = answer_of(&weighing, visits, concurrency) == TOLD ? sum_up(&weighing, told) : 0;
    free(weighing.rest);
    return found;
}

static PyObject *calls_weight(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    if (count != 4 || !PyUnicode_Check(given[1]) || PyUnicode_GetLength(given[1]) < 1) {
        PyErr_SetString(PyExc_TypeError, "weight(visits, match, concurrency, shortcut)");
        return NULL;
    }
    PyObject *visits = visits_of(given[0]);
    if (visits == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    Told told;
    int found = weigh_calls((Calls *)object, visits, PyUnicode_READ_CHAR(given[1], 0), given[2] == Py_True, given[3] == Py_True, &told);
    Py_DECREF(visits);
    if (found > 0)
        return Py_BuildValue("(nd)", told.pairs, told.weight);
    return found < 0 ? NULL : Py_NewRef(Py_None);
}
