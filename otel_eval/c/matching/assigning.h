/* The heaviest one-to-one assignment, found row by row.
 *
 * Knows numbers only. It finds the pairs of the Python module that this is a shortcut for and counts the same work, though
 * it spares itself the ways that lead nowhere.
 */

typedef struct {
    int kind; /* of columns */
    double weight;
} Link;

/* Between kinds of rows and kinds of columns, since those of one kind weigh the same. */
typedef struct {
    Link *links;
    int *first;  /* by kind of rows where its links begin, the heaviest before the others, and where the last one's end */
    int *degree; /* by kind of rows to how many columns they lead */
    ByName columns;
} Links;

typedef struct {
    double far;
    int column, row;
} Way;

typedef struct {
    const Links *links;
    const int *kind_of; /* by row */
    const int *same;    /* by row: a number that rows share that were made of the same */
    double *rent, *price, *best, *reached, *done_at;
    int *column, *owner, *parent, *rows_reached, *columns_done; /* by row, by column, by column, in order, in order */
    int *met, *closed, *seen;                                   /* by column, by column, by `same`: in which search */
    Way *queue;
    Py_ssize_t waiting, queue_room;
    int searches;
    long long steps;
} Search;

static int sooner(Way one, Way other)
{
    if (one.far != other.far)
        return one.far < other.far;
    return one.column != other.column ? one.column < other.column : one.row < other.row;
}

static int push(Search *search, Way way)
{
    Way *queue = roomier(search->queue, search->waiting, &search->queue_room, sizeof(Way));
    if (queue == NULL)
        return -1;
    search->queue = queue;
    Py_ssize_t at = search->waiting++;
    for (; at > 0 && sooner(way, queue[(at - 1) / 2]); at = (at - 1) / 2)
        queue[at] = queue[(at - 1) / 2];
    queue[at] = way;
    return 0;
}

static void pop(Search *search)
{
    Way *queue = search->queue, last = queue[--search->waiting];
    Py_ssize_t at = 0, child;
    while ((child = 2 * at + 1) < search->waiting) {
        if (child + 1 < search->waiting && sooner(queue[child + 1], queue[child]))
            child++;
        if (!sooner(queue[child], last))
            break;
        queue[at] = queue[child];
        at = child;
    }
    queue[at] = last;
}

#define NOISE 1e-9 /* more than sums of weights are ever off by */

/* The ways on from a row that lies at `here`, as far as they are shorter than doing without: no price is above 0 but for
 * what was rounded, so a way is at least as far as its weight makes it. */
static int look_around(Search *search, int row, double here, double nearest)
{
    const Links *links = search->links;
    int kind = search->kind_of[row];
    search->steps += links->degree[kind];
    for (int link = links->first[kind]; link < links->first[kind + 1]; link++) {
        double weight = links->links[link].weight;
        int to = links->links[link].kind;
        if (here - weight - search->rent[row] > nearest + NOISE)
            return 0;
        for (int at = links->columns.first[to]; at < links->columns.first[to + 1]; at++) {
            int column = links->columns.all[at];
            double far = here - weight - search->rent[row] - search->price[column];
            double known_way = search->met[column] == search->searches ? search->best[column] : nearest;
            if (search->closed[column] == search->searches || !(far < known_way))
                continue;
            search->met[column] = search->searches;
            search->best[column] = far;
            search->parent[column] = row;
            if (push(search, (Way){far, column, row}) < 0)
                return -1;
        }
    }
    return 0;
}

/* Hand the columns along the path found on, from its end back to its start. */
static void shift(Search *search, int start, int column, int quitter)
{
    if (column < 0) {
        column = search->column[quitter];
        search->column[quitter] = -1;
        if (quitter == start)
            return;
    }
    for (;;) {
        int row = search->parent[column], left = search->column[row];
        search->column[row] = column;
        search->owner[column] = row;
        if (row == start)
            return;
        column = left;
    }
}

static int augment(Search *search, int start)
{
    int row = start, quitter = start, column = -1, follow = 1, reached = 1, done = 0;
    double here = 0, nearest = -search->rent[start], end = 0;
    search->searches++;
    search->waiting = 0;
    search->rows_reached[0] = start;
    search->reached[0] = 0;
    search->seen[search->same[start]] = search->searches;
    for (;;) {
        if (follow && look_around(search, row, here, nearest) < 0)
            return -1;
        while (search->waiting && search->closed[search->queue[0].column] == search->searches)
            pop(search);
        if (!search->waiting || search->queue[0].far >= nearest) {
            end = nearest;
            column = -1;
            break;
        }
        here = search->queue[0].far;
        column = search->queue[0].column;
        pop(search);
        search->closed[column] = search->searches;
        search->columns_done[done] = column;
        search->done_at[done++] = here;
        if (search->owner[column] < 0) {
            end = here;
            break;
        }
        row = search->owner[column];
        search->rows_reached[reached] = row;
        search->reached[reached++] = here;
        if (here - search->rent[row] < nearest) {
            nearest = here - search->rent[row];
            quitter = row;
        }
        follow = search->seen[search->same[row]] != search->searches;
        search->seen[search->same[row]] = search->searches;
    }
    for (int each = 0; each < reached; each++)
        search->rent[search->rows_reached[each]] += end - search->reached[each];
    for (int each = 0; each < done; each++)
        search->price[search->columns_done[each]] -= end - search->done_at[each];
    shift(search, start, column, quitter);
    return 0;
}

/* Whether of two columns that cost the same the other one is taken: one that nobody has, then the first. */
static int rather(const Search *search, int column, int other)
{
    int owned = search->owner[column] >= 0, other_owned = search->owner[other] >= 0;
    return owned != other_owned ? owned : other < column;
}

static int add_row(Search *search, int row)
{
    const Links *links = search->links;
    int kind = search->kind_of[row], nearest = -1;
    double rent = 0;
    search->steps += links->degree[kind] + 16;
    for (int link = links->first[kind]; link < links->first[kind + 1] && -links->links[link].weight <= rent + NOISE; link++) {
        int to = links->links[link].kind;
        for (int at = links->columns.first[to]; at < links->columns.first[to + 1]; at++) {
            int column = links->columns.all[at];
            double cost = -links->links[link].weight - search->price[column];
            if (cost < rent || (cost == rent && nearest >= 0 && rather(search, nearest, column))) {
                rent = cost;
                nearest = column;
            }
        }
    }
    search->rent[row] = rent;
    if (nearest < 0)
        return 0;
    if (search->owner[nearest] >= 0)
        return augment(search, row);
    search->column[row] = nearest;
    search->owner[nearest] = row;
    return 0;
}

/* The column of each row, or -1. Returns how many steps it took; -1 on failure. */
static long long assign(const Links *links, const int *kind_of, const int *same, int rows, int columns, long long most, int *column_of)
{
    size_t all = (size_t)rows + (size_t)columns + 2;
    Search search = {.links = links, .kind_of = kind_of, .same = same, .column = column_of};
    double *numbers = calloc(5 * all, sizeof(double));
    int *places = calloc(7 * all, sizeof(int));
    int failed = numbers == NULL || places == NULL;
    if (!failed) {
        search.rent = numbers, search.price = numbers + all, search.best = numbers + 2 * all;
        search.reached = numbers + 3 * all, search.done_at = numbers + 4 * all;
        search.owner = places, search.parent = places + all, search.rows_reached = places + 2 * all;
        search.columns_done = places + 3 * all, search.met = places + 4 * all;
        search.closed = places + 5 * all, search.seen = places + 6 * all;
        memset(search.owner, 0xFF, (size_t)columns * sizeof(int));
        memset(column_of, 0xFF, (size_t)rows * sizeof(int));
    }
    for (int row = 0; !failed && row < rows && search.steps <= most; row++)
        failed = add_row(&search, row) < 0;
    free(numbers);
    free(places);
    free(search.queue);
    return failed ? -1 : search.steps;
}
