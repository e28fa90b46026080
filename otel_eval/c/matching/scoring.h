/* From a run to its score, where nothing but its calls decides.
 *
 * Knows the frame around a measurement: the evidence, the ratio, strict and threshold. Refuses to know what is left out
 * or looked up before, and what explains a score: the scorer does when somebody asks. Whatever is not plain is left to it.
 */

typedef struct {
    PyObject_HEAD
    PyObject *given; /* what it was made of, which keeps alive all that follows */
    PyObject *prepared, *expectation;
    PyTypeObject *run, *scored;
    Py_ssize_t incomplete, calls_unknown, calls; /* slots of a run */
    Py_ssize_t value, passed, tell;          /* and of a score */
    Py_UCS4 match, ratio;
    int nested, concurrency, strict;
    double threshold;
} Scoring;

static PyTypeObject *scoring_type, *telling_type;
static PyObject *explained; /* the name of the scorer's method */

enum { OF_RUN = 3, FRAME = 6 };
static PyObject *frame_names[FRAME]; /* of slots: those of a run before those of a score */

/* Explains one score when it is called. */
typedef struct {
    PyObject_HEAD
    PyObject *scorer, *expectation, *visits;
    vectorcallfunc call;
} Tell;

static void telling_dealloc(PyObject *object)
{
    Tell *self = (Tell *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF(self->scorer);
    Py_DECREF(self->expectation);
    Py_DECREF(self->visits);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *telling_call(PyObject *object, PyObject *const *Py_UNUSED(given), size_t flags, PyObject *names)
{
    Tell *self = (Tell *)object;
    if (names != NULL || PyVectorcall_NARGS(flags) != 0) {
        PyErr_SetString(PyExc_TypeError, "what explains a score takes nothing");
        return NULL;
    }
    return PyObject_CallMethodObjArgs(self->scorer, explained, self->expectation, self->visits, NULL);
}

static PyObject *new_telling(PyObject *scorer, PyObject *expectation, PyObject *visits)
{
    Tell *self = PyObject_New(Tell, telling_type);
    if (self == NULL)
        return NULL;
    self->scorer = Py_NewRef(scorer);
    self->expectation = Py_NewRef(expectation);
    self->visits = Py_NewRef(visits);
    self->call = telling_call;
    return (PyObject *)self;
}

/* Pairs and what they weigh: 1 if told, 0 if it is left to Python, -1 on failure. */
static int weigh_any(const Scoring *self, PyObject *visits, Told *told)
{
    if (Py_IS_TYPE(self->prepared, calls_type))
        return weigh_calls((const Calls *)self->prepared, visits, self->match, self->concurrency, 1, told);
    Py_ssize_t weight = weigh_visits((const Names *)self->prepared, visits, self->match, self->nested, self->concurrency);
    *told = (Told){weight, (double)weight};
    if (weight == NO_MEMORY)
        PyErr_NoMemory();
    return weight >= 0 ? 1 : weight == NO_MEMORY ? -1 : 0;
}

static Py_ssize_t expected_of(const Scoring *self)
{
    return Py_IS_TYPE(self->prepared, calls_type) ? ((const Calls *)self->prepared)->kinds.count
                                                  : ((const Names *)self->prepared)->kinds.count;
}

/* Of `exact` all fit, or nothing weighs anything. */
static double ratio_of(const Scoring *self, Told told, Py_ssize_t wanted, Py_ssize_t made)
{
    if (wanted == 0 || made == 0)
        return wanted == made;
    if (self->ratio == 'r')
        return told.weight / (double)wanted;
    return self->ratio == 'p' ? told.weight / (double)made : 2 * told.weight / (double)(wanted + made);
}

static PyObject *new_score(const Scoring *self, PyObject *scorer, PyObject *visits, double value)
{
    double final = self->strict ? value == 1 : value;
    PyObject *given = PyFloat_FromDouble(final), *tell = given == NULL ? NULL : new_telling(scorer, self->expectation, visits);
    PyObject *score = tell == NULL ? NULL : self->scored->tp_alloc(self->scored, 0);
    if (score != NULL) {
        *(PyObject **)((char *)score + self->value) = Py_NewRef(given);
        *(PyObject **)((char *)score + self->passed) = PyBool_FromLong(self->strict ? value == 1 : value >= self->threshold);
        *(PyObject **)((char *)score + self->tell) = Py_NewRef(tell);
    }
    Py_XDECREF(given);
    Py_XDECREF(tell);
    return score;
}

static int is_empty_text(PyObject *text)
{
    return text != NULL && PyUnicode_CheckExact(text) && PyUnicode_GET_LENGTH(text) == 0;
}

/* The calls of a run that tells all; borrowed, NULL where Python has to look at it. */
static PyObject *calls_of(const Scoring *self, PyObject *run)
{
    if (!Py_IS_TYPE(run, self->run))
        return NULL;
    PyObject *calls = slot_of(run, self->calls);
    if (!is_empty_text(slot_of(run, self->incomplete)) || !is_empty_text(slot_of(run, self->calls_unknown)))
        return NULL;
    return calls != NULL && PyTuple_CheckExact(calls) ? calls : NULL;
}

static PyObject *scoring_score(PyObject *object, PyObject *const *given, Py_ssize_t count)
{
    const Scoring *self = (Scoring *)object;
    Told told;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "score(scorer, run)");
        return NULL;
    }
    PyObject *visits = calls_of(self, given[1]), *score = NULL;
    if (visits == NULL)
        Py_RETURN_NONE;
    Py_INCREF(visits);
    int answer = weigh_any(self, visits, &told);
    double value = answer > 0 ? ratio_of(self, told, expected_of(self), PyTuple_GET_SIZE(visits)) : 0;
    if (answer > 0 && value >= 0 && value <= 1)
        score = new_score(self, given[0], visits, value);
    else if (answer >= 0)
        score = Py_NewRef(Py_None);
    Py_DECREF(visits);
    return score;
}

static void scoring_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_DECREF(((Scoring *)object)->given);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Whether all slots of runs and of scores are there. */
static int find_slots(Scoring *self)
{
    Py_ssize_t *wanted[] = {&self->incomplete, &self->calls_unknown, &self->calls, &self->value, &self->passed, &self->tell};
    for (int slot = 0; slot < FRAME; slot++)
        if ((*wanted[slot] = slot_at(slot < OF_RUN ? self->run : self->scored, frame_names[slot])) < 0)
            return 0;
    return 1;
}

static PyObject *prepare_scoring(PyObject *Py_UNUSED(module), PyObject *given)
{
    Scoring made;
    const char *match, *ratio;
    if (!PyArg_ParseTuple(given, "OOO!O!sspppd", &made.prepared, &made.expectation, &PyType_Type, &made.run, &PyType_Type, &made.scored, &match, &ratio,
                          &made.nested, &made.concurrency, &made.strict, &made.threshold))
        return NULL;
    if (!Py_IS_TYPE(made.prepared, names_type) && !Py_IS_TYPE(made.prepared, calls_type)) {
        PyErr_SetString(PyExc_TypeError, "scoring(what `names` or `calls` made, …)");
        return NULL;
    }
    made.match = (Py_UCS4)*match, made.ratio = (Py_UCS4)*ratio;
    if (!find_slots(&made))
        Py_RETURN_NONE;
    Scoring *self = PyObject_New(Scoring, scoring_type);
    if (self == NULL)
        return NULL;
    memcpy((char *)self + offsetof(Scoring, given), (char *)&made + offsetof(Scoring, given), sizeof made - offsetof(Scoring, given));
    self->given = Py_NewRef(given);
    return (PyObject *)self;
}
