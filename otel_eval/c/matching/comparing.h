/* What calls weigh against expected calls with their arguments.
 *
 * Knows the three ways to match where each group holds one call; takes the steps that Python takes.
 */

typedef struct {
    const Calls *calls;
    Run run;
    Py_UCS4 match;
    int shortcut; /* whether equal calls may decide */
    Edges edges;  /* of a kind of actual calls to rows, or of a kind of expected ones to columns */
    int *list_of; /* which edges are a row's or a column's */
    int *partner; /* of a row its column, of a column its row; -1 */
    int paired, whole; /* answer: how many pairs, how many of them weigh 1 */
    double dyadic;     /* answer: the sum of the weights that add up without rounding */
    double *rest;      /* answer: the others */
    int rest_count;
    int *column_of, *misplaced; /* answer where there is room for it: by row its column, and the one that agrees but for its place; -1 */
    double *share;              /* answer: by row what its pair weighs */
} Weighing;

enum { TOLD, LEFT_TO_PYTHON };

static double weight_of(const Weighing *this, int expected, int actual)
{
    const Calls *calls = this->calls;
    if (calls->node[expected] == ANY)
        return 1;
    if (actual < calls->kinds.made)
        return agreement(calls->mode, &calls->store, calls->node[expected], &calls->store, calls->node[actual]);
    return agreement(calls->mode, &calls->store, calls->node[expected], &this->run.store, this->run.node[actual]);
}

/* How many steps Python counts for comparing arguments, at most. */
static long long steps_to_compare(const Calls *calls, const Run *run)
{
    long long steps = 0;
    if ((long long)calls->kinds.count * run->count <= calls->many_pairs)
        return 0;
    for (int place = 0; place < run->count; place++)
        if (run->kind[place] >= 0)
            steps += calls->steps[run->code[run->kind[place]]];
    return steps;
}

static int pair_all(Weighing *this, Py_ssize_t count)
{
    this->paired = this->whole = (int)count;
    return TOLD;
}

static void keep_pair(Weighing *this, int row, int column, double weight)
{
    if (this->column_of == NULL)
        return;
    this->column_of[row] = column;
    this->share[row] = weight;
}

static int pair_in_place(Weighing *this)
{
    for (int place = 0; place < this->run.count; place++)
        keep_pair(this, place, place, 1);
    return pair_all(this, this->run.count);
}

/* Equal calls alone, where they make up all that there can be, or nothing else agrees. */
static int weigh_equals(Weighing *this)
{
    const Calls *calls = this->calls;
    const Kinds *kinds = &calls->kinds;
    Py_ssize_t most = kinds->count < this->run.count ? kinds->count : this->run.count, weight;
    uint64_t *row = malloc((size_t)(kinds->words + kinds->made + 1) * sizeof *row);
    if (row == NULL)
        return LEFT_TO_PYTHON;
    weight = in_common(kinds, this->run.wanted, this->run.count, (int *)row);
    if (this->match == 'i' && (weight == most || calls->mode == EXACT))
        weight = common_length(kinds, kinds->masks, this->run.wanted, this->run.count, row);
    free(row);
    return weight == most || calls->mode == EXACT ? pair_all(this, weight) : LEFT_TO_PYTHON;
}

static int weigh_place_by_place(Weighing *this)
{
    const Calls *calls = this->calls;
    if (calls->kinds.count != this->run.count)
        return pair_all(this, 0);
    for (int place = 0; place < this->run.count; place++) {
        int expected = calls->kinds.kind[place], actual = this->run.kind[place];
        if (actual < 0 || calls->code[expected] != this->run.code[actual])
            return pair_all(this, 0);
        double weight = weight_of(this, expected, actual);
        if (weight < 1)
            return weight < 0 ? LEFT_TO_PYTHON : pair_all(this, 0);
    }
    return pair_all(this, this->run.count);
}

/* From each kind of actual calls to the places of expected ones. 1 if all weigh 1, 0 if not; -1: left to Python. */
static int lay_columns(Weighing *this, double *weights)
{
    const Calls *calls = this->calls;
    int alike = 1;
    for (int kind = 0; kind < this->run.kinds; kind++) {
        int code = this->run.code[kind];
        this->edges.first[kind] = this->edges.filled;
        if (code < 0)
            continue;
        for (int at = calls->own.first[code]; at < calls->own.first[code + 1]; at++)
            if ((weights[calls->own.all[at]] = weight_of(this, calls->own.all[at], kind)) < 0)
                return -1;
        for (int at = calls->places.first[code]; at < calls->places.first[code + 1]; at++) {
            double weight = weights[calls->kinds.kind[calls->places.all[at]]];
            if (weight > 0 && add_edge(&this->edges, calls->places.all[at], weight) < 0)
                return -1;
            alike = alike && (weight == 0 || weight == 1);
        }
    }
    this->edges.first[this->run.kinds] = this->edges.filled;
    return alike;
}

/* Where all weigh 1 the longest common subsequence, of masks. */
static int weigh_masks(Weighing *this)
{
    const Kinds *kinds = &this->calls->kinds;
    if (kinds->words * this->run.kinds > MOST_WORDS)
        return LEFT_TO_PYTHON;
    uint64_t *masks = calloc((size_t)(kinds->words * (this->run.kinds + 1) + 1), sizeof *masks);
    if (masks == NULL)
        return LEFT_TO_PYTHON;
    for (int kind = 0; kind < this->run.kinds; kind++)
        for (Py_ssize_t at = this->edges.first[kind]; at < this->edges.first[kind + 1]; at++)
            masks[kind * kinds->words + this->edges.edges[at].at / 64] |= (uint64_t)1 << this->edges.edges[at].at % 64;
    Py_ssize_t length = common_length(kinds, masks, this->run.kind, this->run.count, masks + this->run.kinds * kinds->words);
    int paired = this->column_of == NULL ? 0 : common_pairs(kinds, masks, this->run.kind, this->run.count, this->column_of);
    free(masks);
    for (int row = 0; this->column_of != NULL && row < kinds->count; row++)
        this->share[row] = 1;
    return paired < 0 ? LEFT_TO_PYTHON : pair_all(this, length);
}

static void add_weight(Weighing *this, double weight)
{
    this->paired++;
    if (weight == 1)
        this->whole++;
    else if (weight * (1 << 20) == (double)(int)(weight * (1 << 20)))
        this->dyadic += weight;
    else
        this->rest[this->rest_count++] = weight;
}

/* The weights of the pairs, each found among the edges of the one side, the columns' or the rows'. */
static void add_weights(Weighing *this, int count, int of_columns)
{
    for (int each = 0; each < count; each++) {
        if (this->partner[each] < 0)
            continue;
        Py_ssize_t low = this->edges.first[this->list_of[each]], high = this->edges.first[this->list_of[each] + 1];
        while (high - low > 1) {
            Py_ssize_t middle = (low + high) / 2;
            if (this->edges.edges[middle].at <= this->partner[each])
                low = middle;
            else
                high = middle;
        }
        add_weight(this, this->edges.edges[low].weight);
        keep_pair(this, of_columns ? this->partner[each] : each, of_columns ? each : this->partner[each], this->edges.edges[low].weight);
    }
}

static int weigh_in_order(Weighing *this, double *weights, long long left)
{
    int rows = (int)this->calls->kinds.count, columns = this->run.count;
    int alike = (long long)rows * columns > left ? -1 : lay_columns(this, weights);
    if (alike)
        return alike < 0 ? LEFT_TO_PYTHON : weigh_masks(this);
    memcpy(this->list_of, this->run.kind, (size_t)columns * sizeof(int));
    if (align_in_order(&this->edges, this->list_of, rows, columns, this->partner) < 0)
        return LEFT_TO_PYTHON;
    add_weights(this, columns, 1);
    return TOLD;
}

/* From each kind of expected calls to the places of actual ones; -1: left to Python. */
static int lay_rows(Weighing *this, double *weights, const ByName *columns)
{
    const Calls *calls = this->calls;
    for (int kind = 0; kind < calls->kinds.made; kind++) {
        int code = calls->code[kind];
        this->edges.first[kind] = this->edges.filled;
        for (int at = columns->first[code]; at < columns->first[code + 1]; at++)
            weights[this->run.kind[columns->all[at]]] = -2;
        for (int at = columns->first[code]; at < columns->first[code + 1]; at++) {
            int column = columns->all[at], actual = this->run.kind[column];
            if (weights[actual] == -2)
                weights[actual] = weight_of(this, kind, actual);
            if (weights[actual] < 0 || (weights[actual] > 0 && add_edge(&this->edges, column, weights[actual]) < 0))
                return -1;
        }
    }
    this->edges.first[calls->kinds.made] = this->edges.filled;
    return 0;
}

static int weigh_any_order(Weighing *this, double *weights, long long left, int *room)
{
    const Calls *calls = this->calls;
    int rows = (int)calls->kinds.count, columns = this->run.count, names = (int)PyDict_GET_SIZE(calls->codes);
    ByName by_name = {.first = room, .all = room + names + 1};
    int *same = by_name.all + columns;
    memset(room, 0, ((size_t)names + 1) * sizeof(int));
    int kept = 0, *kept_code = same + rows, *kept_place = kept_code + columns;
    for (int column = 0; column < columns; column++)
        if (this->run.kind[column] >= 0) {
            kept_code[kept] = this->run.code[this->run.kind[column]];
            kept_place[kept++] = column;
        }
    gather(&by_name, kept_code, NULL, kept, names);
    for (int at = 0; at < kept; at++)
        by_name.all[at] = kept_place[by_name.all[at]];
    if (lay_rows(this, weights, &by_name) < 0)
        return LEFT_TO_PYTHON;
    for (int row = 0; row < rows; row++)
        same[row] = (long long)rows * columns > calls->many_pairs ? calls->kinds.kind[row] : row;
    memcpy(this->list_of, calls->kinds.kind, (size_t)rows * sizeof(int));
    long long steps = assign(&this->edges, this->list_of, same, rows, columns, left, this->partner);
    if (steps < 0 || steps > left)
        return LEFT_TO_PYTHON;
    add_weights(this, rows, 0);
    return TOLD;
}

/* With room for all that it takes; runs no Python code and touches no object. */
static int weigh_pairs(Weighing *this)
{
    const Calls *calls = this->calls;
    size_t rows = (size_t)calls->kinds.count, columns = (size_t)this->run.count;
    size_t all = rows + columns + (size_t)this->run.kinds + 2;
    long long left = calls->most_steps - steps_to_compare(calls, &this->run);
    int *room = malloc(8 * all * sizeof(int)), answer = LEFT_TO_PYTHON;
    double *weights = malloc(2 * all * sizeof(double));
    this->edges.first = calloc(all, sizeof(Py_ssize_t));
    this->list_of = room;
    this->partner = room + all;
    this->rest = weights == NULL ? NULL : weights + all;
    if (room != NULL && weights != NULL && this->edges.first != NULL && left >= 0) {
        if (this->match == 'e')
            answer = (long long)rows * (long long)columns > left ? LEFT_TO_PYTHON : weigh_place_by_place(this);
        else if (this->match == 'i' && rows > 1 && columns > 1)
            answer = weigh_in_order(this, weights, left);
        else
            answer = weigh_any_order(this, weights, left, room + 2 * all);
    }
    free(room);
    free(this->edges.first);
    free(this->edges.edges);
    if (answer != TOLD || this->rest_count == 0) {
        free(weights);
        this->rest = NULL;
    } else { /* its block begins before it */
        memmove(weights, this->rest, (size_t)this->rest_count * sizeof(double));
        this->rest = weights;
    }
    return answer;
}
