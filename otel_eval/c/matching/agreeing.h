/* How far plain arguments agree with expected ones.
 *
 * Knows nodes, and the four ways of the Python module that this is a shortcut for.
 */

enum { EXACT, SUBSET, SUPERSET, OVERLAP };

/* Whether two values are equal; where both are of one side and `alike`, whether they agree equally with all expected ones. */
static int equal_values(const Store *one, int first, const Store *other, int second, int alike)
{
    if (first >= UNSEEN || second >= UNSEEN)
        return first == second && (first != UNSEEN || alike);
    const Node *left = node_of(one, first), *right = node_of(other, second);
    if (left->form != right->form || left->count != right->count || left->unseen != right->unseen || (left->unseen && !alike))
        return 0;
    for (int at = 0; at < left->count; at++) {
        Item mine = one->items[left->first + at], others = other->items[right->first + at];
        if (mine.key != others.key || !equal_values(one, mine.value, other, others.value, alike))
            return 0;
    }
    return 1;
}

/* Whether every item of the one object is in the other. */
static int within(const Store *one, const Node *inner, const Store *other, const Node *outer)
{
    const Item *place = other->items + outer->first, *end = place + outer->count;
    for (int at = inner->first; at < inner->first + inner->count; at++, place++) {
        while (place < end && place->key < one->items[at].key)
            place++;
        if (place == end || place->key != one->items[at].key || !equal_values(one, one->items[at].value, other, place->value, 0))
            return 0;
    }
    return inner->unseen == 0;
}

static double share_of(const Store *one, int first, const Store *other, int second);

/* Of two objects; -1 if it is a sum of several fractions, which Python rounds more carefully. */
static double share_of_keys(const Store *one, const Node *left, const Store *other, const Node *right)
{
    const Item *mine = one->items + left->first, *mine_end = mine + left->count;
    const Item *others = other->items + right->first, *others_end = others + right->count;
    int both = 0, whole = 0, fractions = 0;
    double fraction = 0;
    while (mine < mine_end && others < others_end) {
        if (mine->key != others->key) {
            mine->key < others->key ? mine++ : others++;
            continue;
        }
        int wanted = (mine++)->value, made = (others++)->value;
        both++;
        if (wanted >= UNSEEN || made >= UNSEEN) { /* as mostly */
            whole += wanted == made && wanted != UNSEEN;
            continue;
        }
        double share = share_of(one, wanted, other, made);
        if (share < 0)
            return -1;
        if (share == 0 || share == 1) {
            whole += share == 1;
            continue;
        }
        fractions++;
        fraction = share;
    }
    int all = left->count + left->unseen + right->count + right->unseen - both;
    return fractions > 1 ? -1 : all == 0 ? 1 : (whole + fraction) / all;
}

/* Of two values of which neither is a scalar. */
static double share_of(const Store *one, int first, const Store *other, int second)
{
    const Node *left = node_of(one, first), *right = node_of(other, second);
    if (left->form == LIST || right->form == LIST)
        return equal_values(one, first, other, second, 0);
    return share_of_keys(one, left, other, right);
}

/* In [0, 1]; -1 if only Python can tell. */
static double agreement(int mode, const Store *expected, int wanted, const Store *actual, int made)
{
    const Node *left = node_of(expected, wanted), *right = node_of(actual, made);
    if (mode == EXACT)
        return equal_values(expected, wanted, actual, made, 0);
    if (mode == SUBSET)
        return within(expected, left, actual, right);
    return mode == SUPERSET ? within(actual, right, expected, left) : share_of_keys(expected, left, actual, right);
}
