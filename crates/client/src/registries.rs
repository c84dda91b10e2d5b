//! Policies and modes a server knows.

use macp_wire::v1::{
    GetPolicyRequest, ListExtModesRequest, ListModesRequest, ListPoliciesRequest, ModeDescriptor, PolicyDescriptor,
    RegisterPolicyRequest, UnregisterPolicyRequest,
};

use crate::{Client, Error};

impl Client {
    /// Policies that may govern a mode, or all of them when it is empty.
    pub async fn list_policies(&self, mode: &str) -> Result<Vec<PolicyDescriptor>, Error> {
        let request = ListPoliciesRequest { mode: mode.to_owned() };
        Ok(self.runtime.clone().list_policies(request).await?.into_inner().descriptors)
    }

    pub async fn get_policy(&self, policy_id: &str) -> Result<PolicyDescriptor, Error> {
        let request = GetPolicyRequest { policy_id: policy_id.to_owned() };
        let answer = self.runtime.clone().get_policy(request).await?.into_inner();
        answer.policy_descriptor.ok_or(Error::Incomplete("policy_descriptor"))
    }

    /// Registers a policy. A server that says no says why.
    pub async fn register_policy(&self, descriptor: PolicyDescriptor) -> Result<(), Error> {
        let request = RegisterPolicyRequest { policy_descriptor: Some(descriptor) };
        let answer = self.runtime.clone().register_policy(request).await?.into_inner();
        if answer.ok { Ok(()) } else { Err(Error::Registry(answer.error)) }
    }

    /// Forgets a policy; sessions started under it keep it.
    pub async fn unregister_policy(&self, policy_id: &str) -> Result<(), Error> {
        let request = UnregisterPolicyRequest { policy_id: policy_id.to_owned() };
        let answer = self.runtime.clone().unregister_policy(request).await?.into_inner();
        if answer.ok { Ok(()) } else { Err(Error::Registry(answer.error)) }
    }

    /// The modes of the standard, then the extensions.
    pub async fn list_modes(&self) -> Result<(Vec<ModeDescriptor>, Vec<ModeDescriptor>), Error> {
        let standard = self.runtime.clone().list_modes(ListModesRequest {}).await?.into_inner().modes;
        let extensions = self.runtime.clone().list_ext_modes(ListExtModesRequest {}).await?.into_inner().modes;
        Ok((standard, extensions))
    }
}
