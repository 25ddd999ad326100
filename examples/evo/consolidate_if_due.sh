#!/bin/sh
# Consolidates one scope of evo's store in the background, if it is due. For an agent's hooks: it returns within a second
# or two, prints nothing, and never keeps the agent from going on.
#
# EVO_STORE   evo's file, such as ~/.local/share/evo/evo.db
# EVO_SCOPE   a scope key, such as project:my-site
memfold check "evo:${EVO_STORE:?set EVO_STORE to the file of evo}" --scope "${EVO_SCOPE:?set EVO_SCOPE to a scope key}" \
    > /dev/null 2>&1 || exit 0
nohup memfold run "evo:$EVO_STORE" --scope "$EVO_SCOPE" --preset evo --yes > /dev/null 2>&1 &
