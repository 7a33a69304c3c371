//! Requests about ACLs.

use super::*;

pub(super) static DESCRIBE_ACLS: Struct = FILTER;
/// What DescribeAcls asks for, and each filter of DeleteAcls.
const FILTER: Struct = row(&[
    int8("resource_type_filter"),
    string("resource_name_filter").nullable(),
    int8("pattern_type_filter"),
    string("principal_filter").nullable(),
    string("host_filter").nullable(),
    int8("operation"),
    int8("permission_type"),
]);

pub(super) static CREATE_ACLS: Struct = row(&[array("creations", &ACL_CREATION)]);
static ACL_CREATION: Struct = row(&[
    int8("resource_type"),
    string("resource_name"),
    int8("resource_pattern_type"),
    string("principal"),
    string("host"),
    int8("operation"),
    int8("permission_type"),
]);

pub(super) static DELETE_ACLS: Struct = row(&[array("filters", &DELETE_ACLS_FILTER)]);
static DELETE_ACLS_FILTER: Struct = FILTER;
