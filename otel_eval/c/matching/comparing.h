/* What calls weigh against expected calls with their arguments.
 *
 * Knows the three ways to match where each group holds one call; takes the steps that Python takes.
 */

typedef struct {
    const Calls *calls;
    Run run;
    Py_UCS4 match;
    int shortcut; /* whether equal calls may decide */
    double *weights;     /* by kind of actual calls: what it weighs against each kind of expected ones of its name */
    Py_ssize_t *first;   /* where its own begin */
    int *partner;        /* of a row its column, of a column its row; -1 */
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

static double known_weight(const Weighing *this, int expected, int actual)
{
    return this->weights[this->first[actual] + this->calls->ordinal[expected]];
}

/* Compare every kind that was made with those that are expected. 1 if all that agree weigh 1, 0 if not; -1: left to Python. */
static int compare_kinds(Weighing *this)
{
    const Calls *calls = this->calls;
    Py_ssize_t all = 0;
    int alike = 1;
    for (int kind = 0; kind < this->run.kinds; kind++) {
        int code = this->run.code[kind];
        this->first[kind] = all;
        all += code < 0 ? 0 : calls->own.first[code + 1] - calls->own.first[code];
    }
    if ((this->weights = malloc((size_t)(all + 1) * sizeof(double))) == NULL)
        return -1;
    for (int kind = 0; kind < this->run.kinds; kind++) {
        int code = this->run.code[kind];
        double *own = this->weights + this->first[kind];
        for (int at = code < 0 ? 0 : calls->own.first[code]; code >= 0 && at < calls->own.first[code + 1]; at++, own++) {
            if ((*own = weight_of(this, calls->own.all[at], kind)) < 0)
                return -1;
            alike = alike && (*own == 0 || *own == 1);
        }
    }
    return alike;
}

/* Where all weigh 1 the longest common subsequence, of masks. */
static int weigh_masks(Weighing *this)
{
    const Calls *calls = this->calls;
    const Kinds *kinds = &calls->kinds;
    if (kinds->words * this->run.kinds > MOST_WORDS)
        return LEFT_TO_PYTHON;
    uint64_t *masks = calloc((size_t)(kinds->words * (this->run.kinds + 1) + 1), sizeof *masks);
    if (masks == NULL)
        return LEFT_TO_PYTHON;
    for (int kind = 0; kind < this->run.kinds; kind++) {
        int code = this->run.code[kind];
        for (int at = code < 0 ? 0 : calls->places.first[code]; code >= 0 && at < calls->places.first[code + 1]; at++)
            if (this->weights[this->first[kind] + calls->which[at]] > 0)
                masks[kind * kinds->words + calls->places.all[at] / 64] |= (uint64_t)1 << calls->places.all[at] % 64;
    }
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

static void add_pair(Weighing *this, int row, int column)
{
    double weight = known_weight(this, this->calls->kinds.kind[row], this->run.kind[column]);
    add_weight(this, weight);
    keep_pair(this, row, column, weight);
}

/* How many equal calls an alignment in order certainly pairs, each weighing 1; 0 if that is not known. */
static int certain_pairs(const Weighing *this)
{
    const Kinds *kinds = &this->calls->kinds;
    uint64_t *row = malloc((size_t)(kinds->words + 1) * sizeof *row);
    int certain = row == NULL ? 0 : (int)common_length(kinds, kinds->masks, this->run.wanted, this->run.count, row);
    free(row);
    return certain;
}

static int weigh_in_order(Weighing *this, long long left)
{
    const Calls *calls = this->calls;
    int rows = (int)calls->kinds.count, columns = this->run.count;
    int alike = (long long)rows * columns > left ? -1 : compare_kinds(this);
    if (alike)
        return alike < 0 ? LEFT_TO_PYTHON : weigh_masks(this);
    Column *kinds = calloc((size_t)this->run.kinds + 1, sizeof *kinds);
    for (int kind = 0; kinds != NULL && kind < this->run.kinds; kind++) {
        int code = this->run.code[kind], at = code < 0 ? 0 : calls->places.first[code];
        if (code >= 0)
            kinds[kind] = (Column){calls->places.all + at, calls->which + at, this->weights + this->first[kind],
                                   calls->places.first[code + 1] - at};
    }
    int failed = kinds == NULL || align_in_order(kinds, this->run.kind, rows, columns, certain_pairs(this), this->partner) < 0;
    free(kinds);
    for (int column = 0; !failed && column < columns; column++)
        if (this->partner[column] >= 0)
            add_pair(this, this->partner[column], column);
    return failed ? LEFT_TO_PYTHON : TOLD;
}

#define FEW_LINKS 24 /* up to here each is put in its place as it comes */

/* Which of two of one weight comes first changes nothing. */
static int heavier_first(const void *one, const void *other)
{
    double first = ((const Link *)one)->weight, second = ((const Link *)other)->weight;
    return (first < second) - (first > second);
}

/* The links of one kind of rows, in place, the heaviest first; how many there are. */
static int link_kind(const Weighing *this, int kind, const ByName *made, const ByName *columns, Link *links, int *degree)
{
    int code = this->calls->code[kind], found = 0;
    for (int at = made->first[code]; at < made->first[code + 1]; at++) {
        Link link = {made->all[at], known_weight(this, kind, made->all[at])};
        if (link.weight == 0)
            continue;
        int place = found++;
        for (; found <= FEW_LINKS && place > 0 && links[place - 1].weight < link.weight; place--)
            links[place] = links[place - 1];
        links[place] = link;
        *degree += columns->first[link.kind + 1] - columns->first[link.kind];
    }
    if (found > FEW_LINKS)
        qsort(links, (size_t)found, sizeof(Link), heavier_first);
    return found;
}

static int link_kinds(const Weighing *this, Links *links, int *room)
{
    const Calls *calls = this->calls;
    int names = (int)PyDict_GET_SIZE(calls->codes), kinds = this->run.kinds, columns = this->run.count, filled = 0;
    ByName made = {.first = room, .all = room + names + 1};
    gather(&made, this->run.code, NULL, kinds, names);
    gather(&links->columns, this->run.kind, NULL, columns, kinds);
    Py_ssize_t most = 0;
    for (Py_ssize_t kind = 0; kind < calls->kinds.made; kind++)
        most += made.first[calls->code[kind] + 1] - made.first[calls->code[kind]];
    if ((links->links = malloc((size_t)(most + 1) * sizeof(Link))) == NULL)
        return -1;
    for (int kind = 0; kind < calls->kinds.made; kind++) {
        links->first[kind] = filled;
        filled += link_kind(this, kind, &made, &links->columns, links->links + filled, &links->degree[kind]);
    }
    links->first[calls->kinds.made] = filled;
    return 0;
}

static int weigh_any_order(Weighing *this, long long left)
{
    const Calls *calls = this->calls;
    int rows = (int)calls->kinds.count, columns = this->run.count, kinds = this->run.kinds, names = (int)PyDict_GET_SIZE(calls->codes);
    int *room = calloc(3 * (size_t)rows + (size_t)columns + 2 * (size_t)kinds + (size_t)names + 3, sizeof(int));
    if (room == NULL || compare_kinds(this) < 0) {
        free(room);
        return LEFT_TO_PYTHON;
    }
    int *same = room + rows + 1 + rows;
    Links links = {.first = room, .degree = room + rows + 1, .columns = {.first = same + rows, .all = same + rows + kinds + 1}};
    for (int row = 0; row < rows; row++)
        same[row] = (long long)rows * columns > calls->many_pairs ? calls->kinds.kind[row] : row;
    long long steps = -1;
    if (link_kinds(this, &links, links.columns.all + columns) == 0)
        steps = assign(&links, calls->kinds.kind, same, rows, columns, left, this->partner);
    free(links.links);
    free(room);
    for (int row = 0; steps >= 0 && row < rows; row++)
        if (this->partner[row] >= 0)
            add_pair(this, row, this->partner[row]);
    return steps < 0 || steps > left ? LEFT_TO_PYTHON : TOLD;
}

/* With room for all that it takes; runs no Python code and touches no object. */
static int weigh_pairs(Weighing *this)
{
    const Calls *calls = this->calls;
    size_t rows = (size_t)calls->kinds.count, columns = (size_t)this->run.count;
    long long left = calls->most_steps - steps_to_compare(calls, &this->run);
    int answer = LEFT_TO_PYTHON;
    this->rest = malloc((rows + columns + 1) * sizeof(double));
    this->partner = malloc((rows + columns + 1) * sizeof(int));
    this->first = malloc(((size_t)this->run.kinds + 1) * sizeof(Py_ssize_t));
    if (this->rest != NULL && this->partner != NULL && this->first != NULL && left >= 0) {
        if (this->match == 'e')
            answer = (long long)rows * (long long)columns > left ? LEFT_TO_PYTHON : weigh_place_by_place(this);
        else if (this->match == 'i' && rows > 1 && columns > 1)
            answer = weigh_in_order(this, left);
        else
            answer = weigh_any_order(this, left);
    }
    free(this->weights);
    free(this->first);
    free(this->partner);
    return answer;
}
