-- tally: one row per scope, what its plan comes to; reads plan, losses, policy.
-- Nothing is accepted here: the gate fills in accepted and refused.
with

counts as (
    select
        a.scope,
        count(*) as entries_before,
        count(*) filter (where a.action = 'merge') as merged,
        count(*) filter (where a.action = 'promote') as promoted,
        count(*) filter (where a.action = 'prune') as pruned,
        count(*) filter (where a.action = 'prune' and a.reason = 'expired') as expired,
        count(*) filter (where a.reason = 'held') as held,
        count(*) filter (where a.reason = 'waits') as waits,
        count(*) filter (where a.is_lost) as lost,
        count(*) filter (where a.is_lost_strict) as lost_strict
    from plan as a
    group by a.scope
)

select
    c.scope,
    c.entries_before,
    c.entries_before - c.merged - c.pruned as entries_after,
    c.merged,
    c.promoted,
    c.pruned,
    c.expired,
    c.held,
    c.waits,
    c.lost,
    c.lost_strict,
    coalesce(l.lost, 0) as lost_recently,
    c.entries_before - case when p.strict_entries then c.lost_strict else c.lost end as retained_originals,
    c.lost::double / c.entries_before::double as loss_fraction,
    c.lost_strict::double / c.entries_before::double as loss_fraction_strict,
    false as accepted,
    []::varchar[] as refused
from counts as c
left join losses as l on l.scope = c.scope
cross join policy as p
order by c.scope
